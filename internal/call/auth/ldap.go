package auth

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-ldap/ldap/v3"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// LDAPOptions are Salt's settings of the system ldap. In binddn, filter and
// group_filter {{ username }} stands for the user.
type LDAPOptions struct {
	LDAPURI              string `salt:"auth.ldap.uri" default:"" doc:"URL of the LDAP server, instead of server, port and tls" change:"live"`
	LDAPServer           string `salt:"auth.ldap.server" default:"localhost" doc:"host name of the LDAP server" change:"live"`
	LDAPPort             any    `salt:"auth.ldap.port" default:"389" doc:"port of the LDAP server" change:"live"`
	LDAPTLS              bool   `salt:"auth.ldap.tls" default:"false" doc:"use TLS from the start of the connection (ldaps)" change:"live"`
	LDAPStartTLS         bool   `salt:"auth.ldap.starttls" default:"false" doc:"upgrade the connection with StartTLS before sending a password" change:"live"`
	LDAPNoVerify         bool   `salt:"auth.ldap.no_verify" default:"false" doc:"do not verify the LDAP server's certificate; an attacker on the path can then read passwords" change:"live"`
	LDAPBindDN           string `salt:"auth.ldap.binddn" default:"" doc:"DN to bind as: with bindpw a service account that may search, otherwise the DN of the user" change:"live"`
	LDAPBindPW           string `salt:"auth.ldap.bindpw" default:"" doc:"password of binddn" change:"live"`
	LDAPAnonymous        bool   `salt:"auth.ldap.anonymous" default:"false" doc:"search with an anonymous bind" change:"live"`
	LDAPBaseDN           string `salt:"auth.ldap.basedn" default:"" doc:"base DN of searches" change:"live"`
	LDAPScope            int    `salt:"auth.ldap.scope" default:"2" doc:"scope of the user search: 0 base, 1 one level, 2 subtree" change:"live"`
	LDAPFilter           string `salt:"auth.ldap.filter" default:"" doc:"search filter for a user, such as uid={{ username }}" change:"live"`
	LDAPGroupOU          string `salt:"auth.ldap.groupou" default:"Groups" doc:"organizational unit of the groups below basedn; empty: basedn" change:"live"`
	LDAPGroupClass       string `salt:"auth.ldap.groupclass" default:"posixGroup" doc:"object class of groups" change:"live"`
	LDAPAccountAttribute string `salt:"auth.ldap.accountattributename" default:"memberUid" doc:"attribute of a group that lists its members; in Active Directory the attribute of a user that holds the name" change:"live"`
	LDAPGroupAttribute   string `salt:"auth.ldap.groupattribute" default:"memberOf" doc:"attribute of a user that lists the groups" change:"live"`
	LDAPPersonType       string `salt:"auth.ldap.persontype" default:"person" doc:"object class of users in Active Directory" change:"live"`
	LDAPActiveDirectory  bool   `salt:"auth.ldap.activedirectory" default:"false" doc:"find groups in the way of Active Directory" change:"live"`
	LDAPFreeIPA          bool   `salt:"auth.ldap.freeipa" default:"false" doc:"find groups in the way of FreeIPA" change:"live"`
	LDAPGroupBaseDN      string `salt:"auth.ldap.group_basedn" default:"" doc:"base DN of the groups in FreeIPA" change:"live"`
	LDAPGroupFilter      string `salt:"auth.ldap.group_filter" default:"" doc:"search filter for the groups of a user in FreeIPA" change:"live"`
	LDAPGroupsOnly       bool   `salt:"auth.ldap.auth_by_group_membership_only" default:"false" doc:"Salt: check group membership only, no password; not supported" change:"live"`
}

// directory authenticates against an LDAP server. It finds a user by a search or a DN pattern; the
// user must be able to bind with the password.
type directory struct {
	o   LDAPOptions
	uri string
}

func init() { systems.Register("ldap", newLDAP) }

func newLDAP(_ *value.Dict, all *Options) (System, error) {
	d := &directory{o: all.LDAPOptions, uri: all.LDAPURI}
	o := &d.o
	if d.uri == "" {
		scheme := "ldap"
		if o.LDAPTLS {
			scheme = "ldaps"
		}
		d.uri = scheme + "://" + net.JoinHostPort(strings.Trim(o.LDAPServer, "[]"), value.Str(o.LDAPPort))
	}
	search := o.LDAPAnonymous || o.LDAPBindDN != "" && o.LDAPBindPW != ""
	u, err := url.Parse(d.uri)
	switch {
	case o.LDAPTLS && o.LDAPStartTLS:
		return nil, salt.Errorf(salt.Invalid, "auth.ldap.tls and auth.ldap.starttls are mutually exclusive")
	case o.LDAPGroupsOnly:
		return nil, salt.Errorf(salt.Invalid, "auth.ldap.auth_by_group_membership_only is not supported: it would accept any password")
	case search && (o.LDAPFilter == "" || o.LDAPBaseDN == ""):
		return nil, salt.Errorf(salt.Invalid, "auth.ldap.filter and auth.ldap.basedn are required to search for users")
	case !search && !strings.Contains(o.LDAPBindDN, "username"):
		return nil, salt.Errorf(salt.Invalid, "auth.ldap.binddn must contain {{ username }}, or auth.ldap.bindpw must be set")
	case o.LDAPScope < 0 || o.LDAPScope > 2:
		return nil, salt.Errorf(salt.Invalid, "auth.ldap.scope must be 0, 1 or 2")
	case err != nil || !slices.Contains([]string{"ldap", "ldaps", "ldapi"}, u.Scheme):
		return nil, salt.Errorf(salt.Invalid, "auth.ldap.uri, or auth.ldap.server and auth.ldap.port, must make a URL such as ldaps://ldap.example.com:636, "+
			"not %.200q", d.uri)
	case o.LDAPURI == "" && !isPort(o.LDAPPort):
		return nil, salt.Errorf(salt.Invalid, "auth.ldap.port is %s, not a port from 1 to 65535", value.Str(o.LDAPPort))
	}
	return d, nil
}

// isPort reports whether an option is the number of a port.
func isPort(v any) bool {
	n, err := strconv.ParseUint(value.Str(v), 10, 16)
	return err == nil && n > 0
}

// fill replaces {{ username }} in text.
func fill(text, name string) string {
	for _, form := range []string{"{{ username }}", "{{username}}"} {
		text = strings.ReplaceAll(text, form, name)
	}
	return text
}

// filter builds a filter for a name. Escaping keeps the name from changing the filter.
func filter(text, name string) string {
	f := fill(text, ldap.EscapeFilter(name))
	if !strings.HasPrefix(f, "(") {
		f = "(" + f + ")"
	}
	return f
}

const (
	ldapTime = 10 * time.Second
	// maxGroups bounds the results of one search.
	maxGroups = 1000
)

func (d *directory) dial(ctx context.Context) (*ldap.Conn, error) {
	u := strings.TrimPrefix(strings.TrimPrefix(d.uri, "ldaps://"), "ldap://")
	host, _, err := net.SplitHostPort(strings.TrimSuffix(u, "/"))
	if err != nil {
		host = strings.TrimSuffix(u, "/")
	}
	conf := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: d.o.LDAPNoVerify}
	c, err := ldap.DialURL(d.uri, ldap.DialWithDialer(&net.Dialer{Timeout: ldapTime}), ldap.DialWithTLSConfig(conf))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the LDAP server: %w", err)
	}
	c.SetTimeout(ldapTime)
	context.AfterFunc(ctx, func() { c.Close() })
	if d.o.LDAPStartTLS {
		if err := c.StartTLS(conf); err != nil {
			c.Close()
			return nil, fmt.Errorf("StartTLS with the LDAP server failed: %w", err)
		}
	}
	return c, nil
}

// Authenticate implements System.
func (d *directory) Authenticate(ctx context.Context, c Credentials) (Vouched, error) {
	if c.Password == "" { // many servers accept an empty password as an anonymous bind
		return Vouched{}, ErrRefused
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return Vouched{}, err
	}
	dn := fill(d.o.LDAPBindDN, ldap.EscapeDN(c.Name))
	searches := d.o.LDAPAnonymous || d.o.LDAPBindPW != ""
	if searches {
		if !d.o.LDAPAnonymous {
			if err := conn.Bind(dn, d.o.LDAPBindPW); err != nil {
				return Vouched{}, fmt.Errorf("the LDAP server refuses the bind as auth.ldap.binddn: %w", err)
			}
		}
		if dn, err = d.find(conn, c.Name); err != nil {
			return Vouched{}, err
		}
	}
	user := conn
	if searches {
		// The service account also searches for the groups.
		if user, err = d.dial(ctx); err != nil {
			return Vouched{}, err
		}
	}
	if err := user.Bind(dn, c.Password); err != nil {
		if ldap.IsErrorWithCode(err, ldap.LDAPResultInvalidCredentials) || ldap.IsErrorWithCode(err, ldap.LDAPResultInvalidDNSyntax) {
			return Vouched{}, ErrRefused
		}
		return Vouched{}, fmt.Errorf("the LDAP server refuses the bind: %w", err)
	}
	groups, err := d.groups(conn, c.Name)
	if err != nil {
		return Vouched{}, fmt.Errorf("cannot search for groups: %w", err)
	}
	return Vouched{Groups: groups}, nil
}

func (d *directory) search(c *ldap.Conn, base string, scope int, filter string, attributes ...string) ([]*ldap.Entry, error) {
	r, err := c.Search(ldap.NewSearchRequest(base, scope, ldap.NeverDerefAliases, maxGroups, int(ldapTime/time.Second), false, filter, attributes, nil))
	if ldap.IsErrorWithCode(err, ldap.LDAPResultNoSuchObject) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.Entries, nil
}

// find returns the DN of the only entry that matches the user.
func (d *directory) find(c *ldap.Conn, name string) (string, error) {
	found, err := d.search(c, d.o.LDAPBaseDN, d.o.LDAPScope, filter(d.o.LDAPFilter, name), "1.1")
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot search for a user: %w", err)
	case len(found) == 0:
		return "", ErrRefused
	case len(found) > 1:
		return "", salt.Errorf(salt.Invalid, "auth.ldap.filter matches %s entries for one name; it must match exactly one", strconv.Itoa(len(found)))
	}
	return found[0].DN, nil
}

// groups returns the names of a user's groups.
func (d *directory) groups(c *ldap.Conn, name string) ([]string, error) {
	o := &d.o
	var out []string
	add := func(group string) {
		if group != "" && !slices.Contains(out, group) {
			out = append(out, group)
		}
	}
	account := ldap.EscapeFilter(name)
	switch {
	case o.LDAPActiveDirectory:
		users, err := d.search(c, o.LDAPBaseDN, ldap.ScopeWholeSubtree,
			fmt.Sprintf("(&(%s=%s)(objectClass=%s))", o.LDAPAccountAttribute, account, o.LDAPPersonType), "1.1")
		if err != nil || len(users) == 0 {
			return nil, err
		}
		found, err := d.search(c, o.LDAPBaseDN, ldap.ScopeWholeSubtree,
			fmt.Sprintf("(&(member=%s)(objectClass=%s))", ldap.EscapeFilter(users[0].DN), o.LDAPGroupClass), "cn")
		for _, e := range found {
			add(e.GetAttributeValue("cn"))
		}
		return out, err
	case o.LDAPFreeIPA:
		found, err := d.search(c, o.LDAPGroupBaseDN, ldap.ScopeWholeSubtree, filter(o.LDAPGroupFilter, name), o.LDAPAccountAttribute, o.LDAPGroupAttribute)
		for _, e := range found {
			for _, member := range append(e.GetAttributeValues(o.LDAPAccountAttribute), e.GetAttributeValues(o.LDAPGroupAttribute)...) {
				if member == name || first(member) == name {
					add(first(e.DN))
				}
			}
		}
		return out, err
	}
	base := o.LDAPBaseDN
	if o.LDAPGroupOU != "" {
		base = "ou=" + o.LDAPGroupOU + "," + base
	}
	found, err := d.search(c, base, ldap.ScopeWholeSubtree, fmt.Sprintf("(&(%s=%s)(objectClass=%s))", o.LDAPAccountAttribute, account, o.LDAPGroupClass),
		o.LDAPAccountAttribute, "cn", o.LDAPGroupAttribute)
	for _, e := range found {
		if slices.Contains(e.GetAttributeValues(o.LDAPAccountAttribute), name) {
			add(e.GetAttributeValue("cn"))
		}
		if first(e.DN) == name { // the user's own entry
			for _, g := range e.GetAttributeValues(o.LDAPGroupAttribute) {
				add(first(g))
			}
		}
	}
	return out, err
}

// first returns the value of the first RDN, or "" if dn is malformed.
func first(dn string) string {
	d, err := ldap.ParseDN(dn)
	if err != nil || len(d.RDNs) == 0 || len(d.RDNs[0].Attributes) == 0 {
		return ""
	}
	return d.RDNs[0].Attributes[0].Value
}
