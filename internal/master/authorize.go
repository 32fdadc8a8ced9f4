package master

import (
	"crypto/subtle"
	"fmt"

	"brine/internal/value"
)

// authorize decides whether a clear request comes from a user of this
// machine who may command the master: it must carry a local key.
func (m *Master) authorize(load *value.Dict) bool {
	given := load.Bytes("key")
	if len(given) == 0 || external(load) != nil {
		return false
	}
	ok := 0
	for _, k := range m.local {
		ok |= subtle.ConstantTimeCompare([]byte(k), given)
	}
	return ok == 1
}

// external returns the credentials for an external authentication system that
// a request shows, or nil. There is no such system here, and a request that
// shows them means to be judged by them.
func external(load *value.Dict) *value.Dict {
	for _, d := range []*value.Dict{load, load.Dict("kwargs")} {
		if d.Has("eauth") || d.Has("token") {
			return d
		}
	}
	return nil
}

// refused is the reply to a request without the right to it.
func refused(load *value.Dict) *value.Dict {
	name, msg := "AuthenticationError", "Authentication error occurred."
	if d := external(load); d != nil && load.Str("cmd") == "runner" {
		name, msg = "EauthAuthenticationError", fmt.Sprintf("Authentication failure of type \"eauth\" occurred for user %.100s.", d.Str("username"))
	}
	return value.DictOf("error", value.DictOf("name", name, "message", msg))
}
