package services

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/webutil"
	"brine/internal/host"
)

func init() { units.Register("webutil", webutilModule) }

func webutilModule(m *host.Machine) fn.Module {
	w := webutil.Htpasswd{M: m}
	when := func(fn.Reader) (string, bool) {
		return "The htpasswd execution mdule cannot be loaded: htpasswd binary not in path.", m.Which("htpasswd") != ""
	}
	return fn.Module{Name: "webutil", When: when, Doc: `Files of users and passwords for web servers, by htpasswd.`, Funcs: []fn.Func{
		fn.Of("useradd", w.Add, `Add a user, or change the password of one. The file is made if need be.`,
			fn.Example("salt '*' webutil.useradd /etc/httpd/htpasswd larry badpassword opts=ns")),
		fn.Of("userdel", w.Remove, `Remove a user.`, fn.Example("salt '*' webutil.userdel /etc/httpd/htpasswd larry")),
		fn.Of("verify", w.Verify, `Say whether a password is that of a user.`,
			fn.Example("salt '*' webutil.verify /etc/httpd/htpasswd larry maybepassword opts=ns")),
	}}
}
