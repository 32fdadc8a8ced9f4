package s3fs

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"brine/internal/base/httpclient"
)

// client is a client of an S3 service.
type client struct {
	scheme, host string // URL scheme and host of the service
	pathStyle    bool
	region       string
	keyID, key   string
	http         *http.Client
}

func newClient(o Options) *client {
	c := &client{scheme: "https", host: o.ServiceURL, pathStyle: o.PathStyle, region: o.Location, keyID: o.KeyID, key: o.Key}
	if !o.HTTPS {
		c.scheme = "http"
	}
	if scheme, rest, ok := strings.Cut(c.host, "://"); ok {
		c.scheme, c.host = scheme, rest
	}
	c.host = strings.TrimSuffix(c.host, "/")
	if c.keyID == "" {
		c.keyID, c.key = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	}
	with := httpclient.Options{Proxies: true, DialTimeout: 30 * time.Second, HeaderTimeout: time.Minute, StayHere: true, HTTP2: true,
		IdleTimeout: 90 * time.Second}
	if !o.VerifySSL {
		with.TLS = &tls.Config{InsecureSkipVerify: true} // the user disabled s3.verify_ssl
	}
	c.http = httpclient.New(with)
	return c
}

// object is a file in a bucket.
type object struct {
	Key  string `xml:"Key" json:"key"`
	ETag string `xml:"ETag" json:"etag"`
	Size int64  `xml:"Size" json:"size"`
}

const (
	// maxPage bounds one page of a list, in bytes.
	maxPage = 32 << 20
	// maxObjects bounds the objects of a bucket.
	maxObjects = 10_000_000
)

// list returns the objects of a bucket.
func (c *client) list(ctx context.Context, bucket string) ([]object, error) {
	var out []object
	marker := ""
	for {
		query := url.Values{}
		if marker != "" {
			query.Set("marker", marker)
		}
		body, err := c.get(ctx, bucket, "", query)
		if err != nil {
			return nil, err
		}
		var page struct {
			IsTruncated bool     `xml:"IsTruncated"`
			NextMarker  string   `xml:"NextMarker"`
			Contents    []object `xml:"Contents"`
		}
		err = xml.NewDecoder(io.LimitReader(body, maxPage)).Decode(&page)
		body.Close()
		if err != nil {
			return nil, fmt.Errorf("the list of the bucket %s cannot be read: %w", bucket, err)
		}
		out = append(out, page.Contents...)
		last := page.NextMarker
		if last == "" && len(page.Contents) > 0 {
			last = page.Contents[len(page.Contents)-1].Key
		}
		if !page.IsTruncated {
			return out, nil
		}
		if last <= marker || len(out) > maxObjects {
			return nil, fmt.Errorf("the list of the bucket %s is endless or too long", bucket)
		}
		marker = last
	}
}

// get returns an object, or the list of a bucket if key is empty.
func (c *client) get(ctx context.Context, bucket, key string, query url.Values) (io.ReadCloser, error) {
	host, path := bucket+"."+c.host, "/"+key
	if c.pathStyle {
		host, path = c.host, "/"+bucket+"/"+key
	}
	u := c.scheme + "://" + host + escape(path, true)
	if len(query) > 0 {
		u += "?" + canonicalQuery(query)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	if c.keyID != "" {
		c.sign(r, path, query, time.Now())
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	var fault struct{ Code, Message string }
	if err := xml.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&fault); err != nil || fault.Code == "" {
		return nil, fmt.Errorf("the bucket %s: the server answers %s", bucket, res.Status)
	}
	return nil, fmt.Errorf("the bucket %s: the server answers %s: %s %.300s", bucket, res.Status, fault.Code, fault.Message)
}

// emptyHash is the hash of an empty body.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// sign adds Amazon's signature, version 4, to a request.
func (c *client) sign(r *http.Request, path string, query url.Values, now time.Time) {
	stamp := now.UTC().Format("20060102T150405Z")
	r.Header.Set("x-amz-date", stamp)
	r.Header.Set("x-amz-content-sha256", emptyHash)
	if token := os.Getenv("AWS_SESSION_TOKEN"); token != "" && c.keyID == os.Getenv("AWS_ACCESS_KEY_ID") {
		r.Header.Set("x-amz-security-token", token)
	}
	names := []string{"host"}
	for n := range r.Header {
		names = append(names, strings.ToLower(n))
	}
	slices.Sort(names)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%s\n", r.Method, escape(path, true), canonicalQuery(query))
	for _, n := range names {
		v := r.Header.Get(n)
		if n == "host" {
			v = r.URL.Host
		}
		fmt.Fprintf(&b, "%s:%s\n", n, strings.TrimSpace(v))
	}
	signed := strings.Join(names, ";")
	fmt.Fprintf(&b, "\n%s\n%s", signed, emptyHash)
	hashed := sha256.Sum256([]byte(b.String()))
	scope := stamp[:8] + "/" + c.region + "/s3/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(hashed[:])
	key := []byte("AWS4" + c.key)
	for _, part := range []string{stamp[:8], c.region, "s3", "aws4_request", text} {
		h := hmac.New(sha256.New, key)
		io.WriteString(h, part)
		key = h.Sum(nil)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%x", c.keyID, scope, signed, key))
}

func canonicalQuery(q url.Values) string {
	var parts []string
	for k, vs := range q {
		for _, v := range vs {
			parts = append(parts, escape(k, false)+"="+escape(v, false))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}

// escape encodes all bytes except letters, digits and -_.~ in hexadecimal, as signatures require.
func escape(s string, slashes bool) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~", c) >= 0, c == '/' && slashes:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
