package fileclient

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/httpclient"
	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
)

// WebOptions configure how files of web servers are fetched. The zero value has
// Salt's timeouts and uses the system's trusted certificates.
type WebOptions struct {
	// ConnectTimeout and RequestTimeout bound a connection and a whole
	// transfer; 0 means 20 s and one hour.
	ConnectTimeout, RequestTimeout time.Duration
	// CABundle is a file of trusted certificates that replaces the system's.
	CABundle string
	// UserAgent is the User-Agent header.
	UserAgent string
}

// URLOptions configure how the file of a URL is fetched.
type URLOptions struct {
	Saltenv  string
	Makedirs bool
	// SourceHash is the expected hash of the file, in hexadecimal digits,
	// optionally after its type and a =. A cached file with this hash is not
	// fetched again.
	SourceHash string
	// Insecure accepts any certificate of an https server.
	Insecure bool
	// ETag asks an HTTP server whether the cached file is current.
	ETag bool
}

// GetURL copies the file of a URL to dest, or to the cache if dest is empty,
// and returns its path. It fetches salt, http, https and ftp URLs. As in Salt,
// it returns a local path or file:// URL as a path, and ignores dest. If dest
// is a directory or ends in a slash, the file keeps its name.
func (c *Client) GetURL(ctx context.Context, text, dest string, o URLOptions) (string, error) {
	if strings.HasPrefix(text, scheme) {
		return c.GetFile(ctx, text, dest, GetOptions{Saltenv: o.Saltenv, Makedirs: o.Makedirs})
	}
	if !strings.Contains(text, "://") {
		return absolute(text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", salt.Errorf(salt.Invalid, "cannot read the URL %s: %w", redact.Text(text), errors.Unwrap(err))
	}
	switch u.Scheme {
	case "file":
		return absolute(strings.TrimRight(path.Join(u.Host, u.Path), "/"))
	case "http", "https", "ftp":
	default:
		return "", salt.Errorf(salt.Invalid, "%s:// files cannot be fetched; use salt, http, https, ftp or file", u.Scheme)
	}
	cached := dest == ""
	if dest, err = c.webDest(text, dest, u, o); err != nil {
		return "", err
	}
	if cached && hasHash(dest, o.SourceHash) {
		return dest, nil
	}
	return dest, webServers{c.o.Web}.fetch(ctx, u, dest, o)
}

func absolute(p string) (string, error) {
	if !filepath.IsAbs(p) {
		return "", salt.Errorf(salt.Invalid, "Path '%s' is not absolute", p)
	}
	return p, nil
}

// webDest returns the destination of a file from the web, and creates its
// directory.
func (c *Client) webDest(text, dest string, u *url.URL, o URLOptions) (string, error) {
	if dest == "" {
		p, err := c.ExternPath(text, o.Saltenv)
		if err != nil {
			return "", err
		}
		return p, os.MkdirAll(filepath.Dir(p), 0o755)
	}
	if isDir(dest) || strings.HasSuffix(dest, "/") {
		name := "index.html"
		if u.RawQuery != "" || len(u.Path) > 1 && !strings.HasSuffix(u.Path, "/") {
			name = text[strings.LastIndexByte(text, '/')+1:]
		}
		dest = filepath.Join(dest, name)
	}
	return dest, prepare(dest, fetchOptions{makedirs: o.Makedirs})
}

// ExternPath returns the path at which the file of a URL is cached.
// get_template also stores its output there.
func (c *Client) ExternPath(text, saltenv string) (string, error) {
	if saltenv == "" {
		saltenv = "base"
	}
	host, file := "", text
	if u, err := url.Parse(text); err == nil {
		host, file = u.Host, u.Path
		if u.Port() != "" {
			host = strings.ReplaceAll(host, ":", "")
		}
		if u.RawQuery != "" {
			file += "-" + u.RawQuery
		}
	}
	root := filepath.Join(c.o.CacheDir, "extrn_files", saltenv, host)
	if !filepath.IsLocal(saltenv) || host == ".." || !filepath.IsLocal(strings.TrimLeft(file, "/")) && strings.Trim(file, "/") != "" {
		return "", salt.Errorf(salt.Invalid, "%s cannot be kept in the cache: its path leads out of it", redact.Text(text))
	}
	if len(file) > 255 {
		sum := sha256.Sum256([]byte(file))
		file = hex.EncodeToString(sum[:])
	}
	return filepath.Join(root, file), nil
}

// hasHash reports whether a file has a hash that the user specified.
func hasHash(path, want string) bool {
	want = strings.ToLower(want[strings.LastIndexByte(want, '=')+1:])
	form, ok := lengths[len(want)]
	if !ok {
		return false
	}
	sum, err := hashFile(path, form)
	return err == nil && sum == want
}

// webServers fetches files from http, https and ftp servers.
type webServers struct{ o WebOptions }

// fetch copies the file of a URL to dest.
func (w webServers) fetch(ctx context.Context, u *url.URL, dest string, o URLOptions) error {
	timeout := w.o.RequestTimeout
	if timeout <= 0 {
		timeout = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if u.Scheme == "ftp" {
		return atomicfile.Replace(dest, -1, func(to io.Writer) error { return w.ftp(ctx, u, to) })
	}
	resp, err := w.httpGet(ctx, u, dest, o)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return httpStatus(resp, u)
	}
	err = atomicfile.Replace(dest, -1, func(to io.Writer) error { _, err := io.Copy(to, resp.Body); return err })
	if err != nil {
		return fmt.Errorf("cannot fetch %s: %w", redact.Text(u.String()), err)
	}
	if tag := resp.Header.Get("ETag"); o.ETag && tag != "" {
		return atomicfile.Write(dest+".etag", []byte(tag), 0o644, false)
	}
	return nil
}

// httpStatus returns the error for a response without the file.
func httpStatus(resp *http.Response, u *url.URL) error {
	kind := salt.Unavailable
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone {
		kind = salt.Internal // not NotFound: in Salt, a web server's 404 is an error, not an absence
	}
	return salt.Errorf(kind, "Error: HTTP %d: %s reading %s", resp.StatusCode, http.StatusText(resp.StatusCode), u.Path)
}

func (w webServers) httpGet(ctx context.Context, u *url.URL, dest string, o URLOptions) (*http.Response, error) {
	client, err := w.httpClient(o)
	if err != nil {
		return nil, err
	}
	plain := *u
	plain.User = nil
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, plain.String(), nil)
	if err != nil {
		return nil, err
	}
	if u.User != nil {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	if w.o.UserAgent != "" {
		req.Header.Set("User-Agent", w.o.UserAgent)
	}
	if o.ETag {
		if tag, err := os.ReadFile(dest + ".etag"); err == nil && exists(dest) {
			req.Header.Set("If-None-Match", strings.TrimSpace(string(tag)))
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot fetch %s: %w", redact.Text(u.String()), errors.Unwrap(err))
	}
	return resp, nil
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

func (w webServers) httpClient(o URLOptions) (*http.Client, error) {
	t := &tls.Config{InsecureSkipVerify: o.Insecure} //nolint:gosec // the user asked for it by verify_ssl
	if w.o.CABundle != "" {
		pem, err := os.ReadFile(w.o.CABundle)
		if err != nil {
			return nil, fmt.Errorf("ca_bundle: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, salt.Errorf(salt.Invalid, "ca_bundle: there is no certificate in %s", w.o.CABundle)
		}
	}
	return httpclient.New(httpclient.Options{TLS: t, Proxies: true, Dial: w.dialer().DialContext, HTTP2: true, Once: true}), nil
}

func (w webServers) dialer() *net.Dialer {
	d := w.o.ConnectTimeout
	if d <= 0 {
		d = 20 * time.Second
	}
	return &net.Dialer{Timeout: d}
}

// GetText returns the content of a URL without storing it, like cp.get_url with
// dest None.
func (c *Client) GetText(ctx context.Context, text string, o URLOptions) ([]byte, error) {
	if strings.HasPrefix(text, scheme) {
		return c.Read(ctx, text, o.Saltenv)
	}
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		u, err := url.Parse(text)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "cannot read the URL %s: %w", redact.Text(text), errors.Unwrap(err))
		}
		o.ETag = false
		resp, err := webServers{c.o.Web}.httpGet(ctx, u, "", o)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, httpStatus(resp, u)
		}
		return limited(resp.Body)
	}
	p, err := c.GetURL(ctx, text, "", o)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(p)
	if err != nil {
		return nil, missing(err)
	}
	defer f.Close()
	return limited(f)
}

// maxText bounds the content held in memory, in bytes.
const maxText = 256 << 20

func limited(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(b) > maxText {
		err = salt.Errorf(salt.Invalid, "the file has more than %d bytes; fetch it to a file", maxText)
	}
	return b, err
}
