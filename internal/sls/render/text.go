package render

import (
	"context"
	"strings"
)

func init() { steps.Register("text", renderText) }

// renderText returns the text unchanged, without its "#!" line.
func renderText(_ context.Context, _ *Renderer, req *Request, in any, _ string) (any, error) {
	text, err := asText(req, in, "text")
	if err != nil {
		return nil, err
	}
	return withoutShebang(text), nil
}

func withoutShebang(text string) string {
	if strings.HasPrefix(text, "#!") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}
