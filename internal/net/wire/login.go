package wire

import "brine/internal/py/value"

// Login is the unencrypted request for a token. Source: Salt's
// ClearFuncs.mk_token.
type Login struct {
	Cmd      string `wire:"cmd" max:"64"`
	EAuth    any    `wire:"eauth,omitempty"`
	Username any    `wire:"username,omitempty"`
	Password any    `wire:"password,omitempty"`
	// Token is for modules of the user that take one in place of a password.
	Token any `wire:"token,omitempty"`
	// TokenExpire is the lifetime of the token in seconds.
	TokenExpire any `wire:"token_expire,omitempty"`
	// Perms requests the user's permissions from a Brine master.
	Perms bool        `wire:"_brine_perms,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// TokenRequest is the unencrypted request to look up a token (get_token) or to
// delete it (_brine_logout). Source: Salt's ClearFuncs.get_token.
type TokenRequest struct {
	Cmd   string      `wire:"cmd" max:"64"`
	Token string      `wire:"token" max:"1024"`
	Perms bool        `wire:"_brine_perms,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// Token is a master's answer about a token. Perms are Brine's own.
type Token struct {
	Start  any         `wire:"start,omitempty"`  // Unix seconds
	Expire any         `wire:"expire,omitempty"` // Unix seconds
	Name   string      `wire:"name"`
	EAuth  string      `wire:"eauth"`
	Token  string      `wire:"token"`
	Groups *value.List `wire:"groups,omitempty"`
	Perms  *value.List `wire:"perms,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// Credentials are the keys of a request that authenticate its sender by an external
// authentication system: a token, or a system, a name and a password. They are keys
// of the request or of its kwargs.
type Credentials struct {
	EAuth       any `wire:"eauth,omitempty"`
	Token       any `wire:"token,omitempty"`
	Username    any `wire:"username,omitempty"`
	Password    any `wire:"password,omitempty"`
	TokenExpire any `wire:"token_expire,omitempty"`
	// Approver is the token of a second user, who approves the job (approval_above).
	Approver any         `wire:"_brine_approver,omitempty"`
	Rest     *value.Dict `wire:"*"`
}

// ApproverKey is the name of Credentials.Approver.
const ApproverKey = "_brine_approver"

// ApprovalRequired is the name of the failure if a job needs the approval of a second user.
const ApprovalRequired = "ApprovalRequired"

// ApprovalPrefix begins an ApproverKey that names an approval of the master instead of a token.
const ApprovalPrefix = "approval:"

// ApprovalShown is what the audit log records of a job that waits for a second user.
type ApprovalShown struct {
	User string      `wire:"user"`
	Tgt  any         `wire:"tgt,omitempty"`
	Fun  any         `wire:"fun,omitempty"`
	JID  any         `wire:"jid,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Approval is a job that waits for a second user, as salt-apis and the master exchange it.
type Approval struct {
	ID    string      `wire:"id" max:"64"`
	Chunk *value.Dict `wire:"chunk,omitempty"`
	From  string      `wire:"from,omitempty" max:"256"`
	// State, JID, By and Problem tell what became of the job.
	State   string      `wire:"state,omitempty" max:"32"`
	JID     string      `wire:"jid,omitempty" max:"64"`
	By      string      `wire:"by,omitempty" max:"1024"`
	Problem string      `wire:"problem,omitempty" max:"4096"`
	Rest    *value.Dict `wire:"*"`
}

// System is the external authentication system, "" for none.
func (c *Credentials) System() string { return textOf(c.EAuth) }

// Name is the name of the user, "" for none.
func (c *Credentials) Name() string { return textOf(c.Username) }

// Secret is the password, "" for none.
func (c *Credentials) Secret() string { return textOf(c.Password) }

// SecondToken is the token of the approving user, "" for none.
func (c *Credentials) SecondToken() string { return textOf(c.Approver) }

// textOf returns a string or bytes, else "".
func textOf(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case []byte:
		return string(x)
	}
	return ""
}
