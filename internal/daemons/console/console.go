// Package console has the files of the web console. For its pages it prepares data of the
// master's event bus and of the runner fleet. Package api serves it at /console.
//
// The pages build no HTML from data: the content security policy forbids inline scripts and
// styles, and the assignment of strings to HTML. The files in the directory static are
// served unchanged, without a build step.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var files embed.FS

// start is the file that is served for the directory itself.
const start = "index.html"

// Policy returns the content security policy of the pages. others are the origins of other
// masters' consoles; pages may connect to them to check whether they work.
func Policy(others []string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src " + strings.Join(append([]string{"'self'"}, others...), " ") +
		"; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// Serve sends a file of the console, and reports whether it exists. The name "" means
// the start page.
func Serve(w http.ResponseWriter, r *http.Request, name string, others []string) bool {
	if name == "" {
		name = start
	}
	b, err := files.ReadFile(path.Join("static", name))
	if err != nil {
		return false
	}
	sum := sha256.Sum256(b)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	h := w.Header()
	h.Set("Content-Security-Policy", Policy(others))
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // the browser asks each time whether the file has changed
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Type", kindOf(name))
	if r.Method != http.MethodHead {
		_, _ = w.Write(b) // a client that is gone needs no response
	}
	return true
}

// kindOf returns the content type of a file. For the types of the console it does not
// depend on the tables of the machine.
func kindOf(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(ext)
	}
}
