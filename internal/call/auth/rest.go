package auth

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"brine/internal/base/httpclient"
	"brine/internal/base/salt"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// rest sends credentials to an HTTP server. The server answers 200 to a correct password, with a
// list of permissions or an empty body.
type rest struct {
	url    string
	client *http.Client
}

func init() { systems.Register("rest", newREST) }

func newREST(conf *value.Dict, _ *Options) (System, error) {
	u, err := url.Parse(conf.Str("^url"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, salt.Errorf(salt.Invalid, "^url must be an http or https URL")
	}
	return &rest{url: u.String(), client: httpclient.New(httpclient.Options{
		Proxies: true, DialTimeout: 30 * time.Second, HTTP2: true, IdleTimeout: 90 * time.Second,
		StayHere: true, // the password is for this URL only
	})}, nil
}

// maxRights bounds the response in bytes.
const maxRights = 1 << 20

// Authenticate implements System.
func (r *rest) Authenticate(ctx context.Context, c Credentials) (Vouched, error) {
	form := url.Values{"username": {c.Name}, "password": {c.Password}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(form.Encode()))
	if err != nil {
		return Vouched{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := r.client.Do(req)
	if err != nil {
		return Vouched{}, fmt.Errorf("request failed: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Vouched{}, ErrRefused
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRights+1))
	if err != nil || len(b) > maxRights {
		return Vouched{}, fmt.Errorf("cannot read the response, or it is larger than %d bytes: %w", maxRights, err)
	}
	if strings.TrimSpace(string(b)) == "" {
		return Vouched{}, nil
	}
	v, err := json.Load(string(b))
	if err != nil {
		return Vouched{}, salt.Errorf(salt.Invalid, "the response is not valid JSON: %w", err)
	}
	switch x := v.(type) {
	case nil:
		return Vouched{}, nil
	case *value.List:
		return Vouched{Entries: x.Items}, nil
	}
	return Vouched{}, salt.Errorf(salt.Invalid, "the response must be a list of permissions or empty, not %s", value.TypeName(v))
}
