package grains

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"brine/internal/base/httpclient"
	"brine/internal/py/value"
)

// Bounds for the answers of a metadata server.
const (
	metadataHost     = "http://169.254.169.254"
	metadataDial     = 100 * time.Millisecond // short, as the server is local if it exists
	metadataDepth    = 16
	metadataRequests = 2000
	metadataBytes    = 1 << 20 // per answer
)

func init() { collectors.Register("metadata", metadata) }

// metadata walks the tree of a cloud's metadata server. Without such a server
// there are no grains.
func metadata(ctx context.Context, c *collection) (*value.Dict, error) {
	if !c.Metadata {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.MetadataTimeout)
	defer cancel()
	base := c.MetadataURL
	if base == "" {
		base = metadataHost
	}
	w := newMetadataWalk(base)
	defer w.client.CloseIdleConnections()
	status, _, _, err := w.get(ctx, "latest/")
	if err == nil && status != http.StatusOK {
		if w.token, err = w.newToken(ctx); err == nil {
			status, _, _, err = w.get(ctx, "latest/")
		}
	}
	if err != nil || status != http.StatusOK {
		c.log.Debug("metadata server unreachable; no metadata grains", "status", status, "err", err)
		return nil, nil
	}
	v, err := w.walk(ctx, "latest/", 0)
	if err != nil {
		err = fmt.Errorf("cannot read all of the cloud's metadata: %w", err)
	}
	d, _ := v.(*value.Dict)
	return d, err
}

type metadataWalk struct {
	client *http.Client
	base   string
	token  string
	left   int // number of requests that are still allowed
}

func newMetadataWalk(base string) *metadataWalk {
	return &metadataWalk{
		base:   strings.TrimSuffix(base, "/") + "/",
		left:   metadataRequests,
		client: httpclient.New(httpclient.Options{DialTimeout: metadataDial, StayHere: true}), // no proxy: this address is local to the host
	}
}

func (w *metadataWalk) do(ctx context.Context, method, path string, header http.Header) (status int, kind, body string, err error) {
	if w.left--; w.left < 0 {
		return 0, "", "", errors.New("the answer is too large")
	}
	u, err := url.Parse(w.base + path)
	if err != nil {
		return 0, "", "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return 0, "", "", err
	}
	req.Header = header
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, metadataBytes))
	return resp.StatusCode, resp.Header.Get("Content-Type"), strings.ToValidUTF8(string(b), "\ufffd"), err
}

func (w *metadataWalk) get(ctx context.Context, path string) (status int, kind, body string, err error) {
	h := http.Header{}
	if w.token != "" {
		h.Set("X-aws-ec2-metadata-token", w.token)
	}
	return w.do(ctx, http.MethodGet, path, h)
}

func (w *metadataWalk) newToken(ctx context.Context) (string, error) {
	status, _, body, err := w.do(ctx, http.MethodPut, "latest/api/token", http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"21600"}})
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("no token: status %d", status)
	}
	return strings.TrimSpace(body), err
}

// walk returns the dict of a directory, or the contents of a file.
func (w *metadataWalk) walk(ctx context.Context, path string, depth int) (any, error) {
	d := value.NewDict(8)
	if depth > metadataDepth {
		return d, errors.New("the tree is too deep")
	}
	status, kind, body, err := w.get(ctx, path)
	switch {
	case err != nil:
		return d, err
	case status != http.StatusOK:
		return d, nil
	case kind == "application/octet-stream":
		return body, nil
	}
	for line := range strings.SplitSeq(body, "\n") {
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			continue
		}
		name, v, err := w.entry(ctx, path, line, depth)
		if v != nil || err == nil {
			d.Set(name, v)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// entry parses one line of a directory: "name/" is a directory, "0=name" a directory
// with another name; in the top directory all entries are directories.
func (w *metadataWalk) entry(ctx context.Context, path, line string, depth int) (name string, v any, err error) {
	below := joinURL(path, line)
	key, label, named := strings.Cut(line, "=")
	switch {
	case strings.HasSuffix(line, "/"):
		name = strings.TrimSuffix(line, "/")
		v, err = w.walk(ctx, below, depth+1)
	case path == "latest/":
		name = line
		v, err = w.walk(ctx, below+"/", depth+1)
	case strings.HasSuffix(line, "dynamic"), strings.HasSuffix(line, "meta-data"):
		name = line
		v, err = w.walk(ctx, below, depth+1)
	case named:
		name = label
		v, err = w.walk(ctx, joinURL(path, key), depth+1)
	default:
		name = line
		var status int
		var text string
		if status, _, text, err = w.get(ctx, below); err == nil && status == http.StatusOK {
			v = text
		}
	}
	return name, v, err
}

func joinURL(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }
