package auth

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/host/freeport"
	"brine/test/tools"
)

const ldif = `dn: dc=lab
objectClass: domain
dc: lab

dn: ou=people,dc=lab
objectClass: organizationalUnit
ou: people

dn: ou=Groups,dc=lab
objectClass: organizationalUnit
ou: Groups

dn: cn=reader,dc=lab
objectClass: person
cn: reader
sn: r
userPassword: readpw

dn: uid=ann,ou=people,dc=lab
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: a
userPassword: annpw

dn: uid=bob\,x,ou=people,dc=lab
objectClass: inetOrgPerson
uid: bob,x
cn: Bob
sn: b
userPassword: bobpw

dn: uid=twin,ou=people,dc=lab
objectClass: inetOrgPerson
uid: twin
cn: one
sn: b
userPassword: twinpw

dn: uid=twin,ou=Groups,dc=lab
objectClass: inetOrgPerson
uid: twin
cn: two
sn: b
userPassword: twinpw

dn: cn=ops,ou=Groups,dc=lab
objectClass: posixGroup
cn: ops
gidNumber: 1
memberUid: ann
memberUid: bob,x

dn: cn=dev,ou=Groups,dc=lab
objectClass: posixGroup
cn: dev
gidNumber: 2
memberUid: other

dn: cn=members,ou=Groups,dc=lab
objectClass: groupOfNames
cn: members
member: uid=ann,ou=people,dc=lab
`

// slapd starts an LDAP server and returns its URL.
func slapd(t *testing.T) string {
	t.Helper()
	const program = "/usr/sbin/slapd"
	modules, _ := filepath.Glob("/usr/lib/ldap/back_mdb*")
	if _, err := os.Stat(program); err != nil || len(modules) == 0 {
		tools.Missing(t, "slapd")
	}
	dir := t.TempDir()
	db := filepath.Join(dir, "db")
	conf, data := filepath.Join(dir, "slapd.conf"), filepath.Join(dir, "data.ldif")
	if err := os.Mkdir(db, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		data: ldif,
		conf: "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\ninclude /etc/ldap/schema/nis.schema\ninclude " +
			"/etc/ldap/schema/inetorgperson.schema\n" +
			"modulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile " + dir + "/pid\nargsfile " + dir + "/args\ndatabase mdb\nsuffix dc=lab\ndirectory " +
			db + "\n" +
			"access to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("/usr/sbin/slapadd", "-f", conf, "-l", data).CombinedOutput(); err != nil {
		t.Fatalf("slapadd: %v: %s", err, out)
	}
	// A port that is free now may be taken by the time slapd binds it.
	for range 5 {
		ports, err := freeport.TCP(1)
		if err != nil {
			t.Fatal(err)
		}
		addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
		ctx, stop := context.WithCancel(context.Background())
		cmd := exec.CommandContext(ctx, program, "-f", conf, "-h", "ldap://"+addr, "-d", "0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		for up := time.Now().Add(time.Minute); time.Now().Before(up); {
			if c, err := net.Dial("tcp", addr); err == nil {
				c.Close()
				select {
				case <-ended: // another process took the port
				default:
					t.Cleanup(func() { stop(); <-ended })
					return addr
				}
			}
			select {
			case <-ended:
				up = time.Time{}
			case <-time.After(20 * time.Millisecond):
			}
		}
		stop()
		<-ended
	}
	t.Fatal("slapd did not start")
	return ""
}

func TestLDAP(t *testing.T) {
	host, port, _ := net.SplitHostPort(slapd(t))
	with := func(change func(*LDAPOptions)) Options {
		o := LDAPOptions{LDAPServer: host, LDAPPort: port, LDAPBaseDN: "dc=lab", LDAPScope: 2, LDAPGroupOU: "Groups", LDAPGroupClass: "posixGroup",
			LDAPAccountAttribute: "memberUid", LDAPGroupAttribute: "memberOf", LDAPPersonType: "person"}
		change(&o)
		return Options{LDAPOptions: o, External: external(t, "ldap: {ann: [a.b], ops%: [c.d], members%: [e.f]}")}
	}
	searching := with(func(o *LDAPOptions) {
		o.LDAPBindDN, o.LDAPBindPW, o.LDAPFilter = "cn=reader,dc=lab", "readpw", "uid={{ username }}"
	})
	direct := with(func(o *LDAPOptions) { o.LDAPBindDN = "uid={{ username }},ou=people,dc=lab" })
	anonymous := with(func(o *LDAPOptions) { o.LDAPAnonymous, o.LDAPFilter, o.LDAPGroupOU = true, "(uid={{username}})", "" })
	active := with(func(o *LDAPOptions) {
		o.LDAPAnonymous, o.LDAPFilter, o.LDAPActiveDirectory = true, "(uid={{username}})", true
		o.LDAPAccountAttribute, o.LDAPGroupClass = "uid", "groupOfNames"
	})
	wrongReader := with(func(o *LDAPOptions) {
		o.LDAPBindDN, o.LDAPBindPW, o.LDAPFilter = "cn=reader,dc=lab", "no", "uid={{ username }}"
	})
	nowhere := with(func(o *LDAPOptions) { o.LDAPBindDN, o.LDAPPort = "uid={{ username }},ou=people,dc=lab", int64(1) })
	for _, c := range []struct {
		what           string
		o              Options
		name, password string
		groups         string // "-" is refused
	}{
		{"searching", searching, "ann", "annpw", "[ops]"},
		{"searching", searching, "ann", "wrong", "-"},
		{"searching", searching, "ann", "", "-"},
		{"searching", searching, "nobody", "annpw", "-"},
		{"searching", searching, "*", "annpw", "-"},
		{"searching", searching, "ann)(uid=*", "annpw", "-"},
		{"searching", searching, "twin", "twinpw", "-"}, // two entries
		{"searching", searching, "bob,x", "bobpw", "[ops]"},
		{"direct", direct, "ann", "annpw", "[ops]"},
		{"direct", direct, "ann", "wrong", "-"},
		{"direct", direct, "ann", "", "-"},
		{"direct", direct, "bob,x", "bobpw", "[ops]"},
		{"direct", direct, "ann,ou=people,dc=lab", "annpw", "-"},
		{"direct", direct, "", "annpw", "-"},
		{"anonymous", anonymous, "ann", "annpw", "[ops]"},
		{"anonymous", anonymous, "ann", "wrong", "-"},
		{"Active Directory", active, "ann", "annpw", "[members]"},
		{"a wrong account", wrongReader, "ann", "annpw", "-"},
		{"no directory", nowhere, "ann", "annpw", "-"},
	} {
		u, err := must(t, c.o).Authenticate(t.Context(), Credentials{"ldap", c.name, c.password, nil})
		switch {
		case err != nil && c.groups != "-":
			t.Errorf("%s, %s: %v", c.what, c.name, err)
		case err == nil && fmt.Sprint(u.Groups) != c.groups:
			t.Errorf("%s, %s: groups %v", c.what, c.name, u.Groups)
		}
	}
}

func TestLDAPSettings(t *testing.T) {
	for want, o := range map[string]LDAPOptions{
		"mutually exclusive": {LDAPTLS: true, LDAPStartTLS: true},
		"password":           {LDAPGroupsOnly: true},
		"filter":             {LDAPAnonymous: true, LDAPScope: 2},
		"username":           {LDAPBindDN: "cn=reader,dc=lab"},
		"scope":              {LDAPBindDN: "uid={{ username }}", LDAPScope: 3},
	} {
		if _, err := newLDAP(nil, &Options{LDAPOptions: o}); salt.KindOf(err) != salt.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if !slices.Contains(Systems(), "ldap") {
		t.Error(Systems())
	}
}

func TestLDAPNames(t *testing.T) {
	for name, want := range map[string]string{"ann": "(uid=ann)", "*": `(uid=\2a)`, "a)(uid=*": `(uid=a\29\28uid=\2a)`, "x\x00": `(uid=x\00)`} {
		if got := filter("uid={{ username }}", name); got != want {
			t.Errorf("%q: %s", name, got)
		}
	}
	for dn, want := range map[string]string{"cn=ops,dc=lab": "ops", `uid=bob\,x,dc=lab`: "bob,x", "": "", "x": ""} {
		if got := first(dn); got != want {
			t.Errorf("%s: %q", dn, got)
		}
	}
}
