package accounts

import (
	"context"
	"os"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("user", func() state.Module {
		return state.Module{Name: "user", Doc: `Keep users.`, Funcs: []state.Func{
			state.Of("present", userPresent, `Have a user, possibly with an id, groups, a home, a password and more.`),
			state.Of("absent", userAbsent, `Have no such user.`),
		}}
	})
}

type userArgs struct {
	Name            string `salt:"name" doc:"name of the user"`
	UID             any    `salt:"uid" doc:"id; the next free one if null" default:"null"`
	GID             any    `salt:"gid" doc:"own group, by name or id" default:"null"`
	Usergroup       *bool  `salt:"usergroup" doc:"make a group of the user's name; as the system does by default if null" default:"null"`
	Groups          any    `salt:"groups" doc:"list of further groups, which must exist; null leaves them alone" default:"null"`
	OptionalGroups  any    `salt:"optional_groups" doc:"list of further groups, which may be missing" default:"null"`
	RemoveGroups    bool   `salt:"remove_groups" doc:"take the user out of all other groups" default:"true"`
	Home            string `salt:"home" doc:"path of the home" default:"null"`
	Createhome      bool   `salt:"createhome" doc:"make the home" default:"true"`
	PersistHome     bool   `salt:"persist_home" doc:"move the content of the old home to a new one" default:"false"`
	Password        any    `salt:"password" doc:"hash of the password" default:"null"`
	HashPassword    bool   `salt:"hash_password" doc:"the password is no hash: make one" default:"false"`
	EnforcePassword bool   `salt:"enforce_password" doc:"change the password of a user who has one" default:"true"`
	EmptyPassword   bool   `salt:"empty_password" doc:"let the user in without password" default:"false"`
	Shell           any    `salt:"shell" doc:"login shell" default:"null"`
	Unique          bool   `salt:"unique" doc:"refuse an id that another user has" default:"true"`
	System          bool   `salt:"system" doc:"make a system user" default:"false"`
	Fullname        any    `salt:"fullname" doc:"full name" default:"null"`
	Roomnumber      any    `salt:"roomnumber" doc:"room number" default:"null"`
	Workphone       any    `salt:"workphone" doc:"telephone number at work" default:"null"`
	Homephone       any    `salt:"homephone" doc:"telephone number at home" default:"null"`
	Other           any    `salt:"other" doc:"further information" default:"null"`
	Loginclass      any    `salt:"loginclass" doc:"login class, on BSD" default:"null"`
	Date            any    `salt:"date" doc:"day on which the password was changed, in days since 1970" default:"null"`
	Mindays         any    `salt:"mindays" doc:"days that must be between two changes of the password" default:"null"`
	Maxdays         any    `salt:"maxdays" doc:"days for which a password is good" default:"null"`
	Inactdays       any    `salt:"inactdays" doc:"days after which a user with an expired password is shut out" default:"null"`
	Warndays        any    `salt:"warndays" doc:"days for which the user is warned that the password expires" default:"null"`
	Expire          any    `salt:"expire" doc:"day on which the user is shut out, in days since 1970" default:"null"`
	Homedrive       any    `salt:"win_homedrive" ignored:"only Windows has it" default:"null"`
	Profile         any    `salt:"win_profile" ignored:"only Windows has it" default:"null"`
	Logonscript     any    `salt:"win_logonscript" ignored:"only Windows has it" default:"null"`
	Description     any    `salt:"win_description" ignored:"only Windows has it" default:"null"`
	Nologinit       bool   `salt:"nologinit" doc:"keep the user out of lastlog and faillog" default:"false"`
	AllowUIDChange  bool   `salt:"allow_uid_change" doc:"change the id of a user; files keep the old one" default:"false"`
	AllowGIDChange  bool   `salt:"allow_gid_change" doc:"change the own group of a user; files keep the old one" default:"false"`
	PasswordLock    *bool  `salt:"password_lock" doc:"true: the password is locked; false: the password works; null leaves that alone" default:"null"`
	Local           bool   `salt:"local" doc:"the machine's own users, past a directory service" default:"false"`
}

// redacted is shown instead of passwords.
const redacted = "XXX-REDACTED-XXX"

// userState is the declared user, with what prepare has found out.
type userState struct {
	e        *state.Env
	a        userArgs
	optional []string // those optional groups that exist
	ids      map[string]any
}

func userPresent(ctx context.Context, e *state.Env, a userArgs) (state.Plan, error) {
	u := &userState{e: e, a: a, ids: map[string]any{}}
	if err := u.prepare(ctx); err != nil {
		return state.Plan{}, err
	}
	have, err := info(ctx, e, "user", a.Name, a.Local)
	if err != nil {
		return state.Plan{}, err
	}
	if have.Len() == 0 {
		return state.Plan{Steps: []state.Step{{
			Change: state.Change{Comment: "User " + a.Name + " set to be added"},
			Do:     u.create,
		}}}, nil
	}
	gid, err := u.ownGroup(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	changes, err := u.differs(ctx, have, gid)
	if err == nil {
		err = u.forbidden(have, changes)
	}
	if err != nil || changes.Len() == 0 {
		return state.Plan{Comment: "User " + a.Name + " is present and up to date"}, err
	}
	comment := "The following user attributes are set to be changed:\n"
	for k, v := range changes.All() {
		if k == "passwd" {
			v = redacted
		}
		comment += value.Str(k) + ": " + value.Str(v) + "\n"
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: comment},
		Do:     func(ctx context.Context) (state.Change, error) { return u.change(ctx, have, changes) },
	}}}, nil
}

// prepare validates the arguments and looks up groups.
func (u *userState) prepare(ctx context.Context) error {
	a := &u.a
	for _, f := range []*any{&a.Fullname, &a.Roomnumber, &a.Workphone, &a.Homephone, &a.Other} {
		if *f != nil {
			*f = value.Str(*f)
		}
	}
	if value.Truth(a.Password) && a.HashPassword {
		if err := u.hash(ctx); err != nil {
			return err
		}
	}
	for _, f := range []any{a.Fullname, a.Roomnumber, a.Workphone} {
		if s, ok := f.(string); ok && strings.Contains(s, ",") {
			return fn.Errorf("Unsupported char ',' in %s", s)
		}
	}
	var missing []string
	for _, g := range value.Texts(a.Groups) {
		d, err := info(ctx, u.e, "group", g, false)
		if err != nil {
			return err
		}
		if d.Len() == 0 {
			missing = append(missing, g)
		}
	}
	if len(missing) > 0 {
		return fn.Errorf("The following group(s) are not present: %s", strings.Join(missing, ","))
	}
	for _, g := range value.Texts(a.OptionalGroups) {
		d, err := info(ctx, u.e, "group", g, false)
		if err != nil {
			return err
		}
		if d.Len() > 0 {
			u.optional = append(u.optional, g)
		}
	}
	return nil
}

// hash hashes the password with the salt of the user's current hash, so that
// equal passwords do not differ.
func (u *userState) hash(ctx context.Context) error {
	v, err := u.e.Exec(ctx, "shadow.info", nil, u.a.Name)
	if err != nil {
		return err
	}
	d, _ := v.(*value.Dict)
	kw := value.NewDict(2)
	algorithms := map[string]string{"1": "md5", "2a": "blowfish", "5": "sha256", "6": "sha512"}
	if parts := strings.Split(d.Str("passwd"), "$"); len(parts) == 4 && algorithms[parts[1]] != "" {
		kw = value.DictOf("crypt_salt", parts[2], "algorithm", algorithms[parts[1]])
	}
	u.a.Password, err = u.e.Exec(ctx, "shadow.gen_password", kw, u.a.Password)
	return err
}

// gidOf returns the id of a group by name, "" without one.
func (u *userState) gidOf(ctx context.Context, name any) (any, error) {
	key := value.Repr(name)
	if id, ok := u.ids[key]; ok {
		return id, nil
	}
	id, err := u.e.Exec(ctx, "file.group_to_gid", nil, name)
	u.ids[key] = id
	return id, err
}

// ownGroup returns the primary group that the user should have. With
// usergroup, it is the group with the user's name, if it exists.
func (u *userState) ownGroup(ctx context.Context) (any, error) {
	if u.a.Usergroup != nil && *u.a.Usergroup {
		if id, err := u.gidOf(ctx, u.a.Name); err != nil || id != "" {
			return u.a.Name, err
		}
	}
	return u.a.GID, nil
}

// shadow returns the user's entry in the password file, nil without one.
func (u *userState) shadow(ctx context.Context) (*value.Dict, error) {
	if !u.e.Can("shadow.info") {
		return nil, nil
	}
	v, err := u.e.Exec(ctx, "shadow.info", nil, u.a.Name)
	d, _ := v.(*value.Dict)
	return d, err
}

// differs returns the attributes of a user that differ, with their declared
// values.
func (u *userState) differs(ctx context.Context, have *value.Dict, gid any) (*value.Dict, error) {
	a, change := u.a, value.NewDict(8)
	if value.Truth(a.UID) && !value.Equal(have.At("uid"), a.UID) {
		change.Set("uid", a.UID)
	}
	if gid != nil {
		id, err := u.gidOf(ctx, gid)
		if err != nil {
			return nil, err
		}
		if !value.Equal(have.At("gid"), gid) && !value.Equal(have.At("gid"), id) {
			change.Set("gid", gid)
		}
	}
	wanted, differ, err := u.groups(ctx, have, gid)
	if err != nil {
		return nil, err
	}
	if differ {
		change.Set("groups", value.Strings(wanted))
	}
	home := a.Home
	if home == "" {
		home = have.Str("home")
	} else if have.Str("home") != home {
		change.Set("home", home)
	}
	if st, err := os.Stat(home); a.Createhome && (err != nil || !st.IsDir()) {
		change.Set("homeDoesNotExist", home)
	}
	if value.Truth(a.Shell) && have.At("shell") != a.Shell {
		change.Set("shell", a.Shell)
	}
	if err := u.shadowDiffers(ctx, change); err != nil {
		return nil, err
	}
	for _, g := range []struct {
		key  string
		want any
	}{{"fullname", a.Fullname}, {"roomnumber", a.Roomnumber}, {"workphone", a.Workphone}, {"homephone", a.Homephone}, {"other", a.Other}} {
		if g.want != nil && (g.key == "fullname" || u.e.Can("user.ch"+g.key)) && !value.Equal(have.At(g.key), g.want) {
			change.Set(g.key, g.want)
		}
	}
	kernel := value.Str(u.e.Grains.Get("kernel"))
	bsd := kernel == "FreeBSD" || kernel == "OpenBSD" // as in Salt, others ignore the class
	if class := a.Loginclass; bsd && value.Truth(class) && u.e.Can("user.get_loginclass") {
		now, err := u.e.Exec(ctx, "user.get_loginclass", nil, a.Name)
		if err != nil {
			return nil, err
		}
		if !value.Equal(now, class) {
			change.Set("loginclass", class)
		}
	}
	return change, nil
}

// groups returns the supplementary groups that the user should have, and
// whether the present ones differ.
func (u *userState) groups(ctx context.Context, have *value.Dict, gid any) (wanted []string, differ bool, err error) {
	now := value.Texts(have.At("groups"))
	wanted = append(value.Texts(u.a.Groups), u.optional...)
	if !u.a.RemoveGroups || u.a.Groups == nil && len(u.optional) == 0 {
		wanted = append(wanted, now...)
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	own, old := gid, have.At("gid")
	if own == nil {
		own = old
	}
	drop := func(name string) error {
		id, err := u.gidOf(ctx, name)
		if err != nil {
			return err
		}
		same := []string{name}
		for _, g := range now {
			other, err := u.gidOf(ctx, g)
			if err != nil {
				return err
			}
			if slices.Contains(now, name) && value.Equal(other, id) {
				same = append(same, g)
			}
		}
		gone := func(g string) bool { return slices.Contains(same, g) }
		now, wanted = slices.DeleteFunc(now, gone), slices.DeleteFunc(wanted, gone)
		return nil
	}
	// The primary group is not a supplementary one, even if it is about to
	// change. Neither is a group with the user's name that was not requested.
	for i, g := range []any{own, old} {
		v, err := u.e.Exec(ctx, "file.gid_to_group", nil, g)
		if err != nil {
			return nil, false, err
		}
		name := value.Str(v)
		if i == 0 {
			err = drop(name)
		} else {
			now = slices.DeleteFunc(now, func(g string) bool { return g == name })
		}
		if err != nil {
			return nil, false, err
		}
	}
	if slices.Contains(now, u.a.Name) && !slices.Contains(wanted, u.a.Name) {
		now = slices.DeleteFunc(now, func(g string) bool { return g == u.a.Name })
	}
	differ, err = u.groupsDiffer(ctx, now, wanted)
	return wanted, differ && (len(wanted) > 0 || u.a.RemoveGroups), err
}

// groupsDiffer compares groups. Groups with the same id are equal.
func (u *userState) groupsDiffer(ctx context.Context, now, wanted []string) (bool, error) {
	var diff []string
	for _, g := range wanted {
		if !slices.Contains(now, g) {
			diff = append(diff, g)
		}
	}
	if u.a.RemoveGroups {
		for _, g := range now {
			if !slices.Contains(wanted, g) {
				diff = append(diff, g)
			}
		}
	}
	for _, g := range diff {
		id, err := u.gidOf(ctx, g)
		if err != nil {
			return false, err
		}
		alone := true
		for _, other := range slices.Concat(now, wanted) {
			if other == g {
				continue
			}
			o, err := u.gidOf(ctx, other)
			if err != nil {
				return false, err
			}
			alone = alone && !value.Equal(o, id)
		}
		if alone {
			return true, nil
		}
	}
	return false, nil
}

// days lists the attributes of the shadow file that are counted in days, in
// the order in which they are set, with the names of their argument and entry.
var days = []struct{ arg, entry, words string }{
	{"date", "lstchg", "last change date"}, {"mindays", "min", "minimum days"}, {"maxdays", "max", "maximum days"},
	{"inactdays", "inact", "inactive days"}, {"warndays", "warn", "warn days"}, {"expire", "expire", "expire days"},
}

func (a userArgs) day(name string) any {
	return map[string]any{"date": a.Date, "mindays": a.Mindays, "maxdays": a.Maxdays, "inactdays": a.Inactdays, "warndays": a.Warndays, "expire": a.Expire}[name]
}

func (u *userState) shadowDiffers(ctx context.Context, change *value.Dict) error {
	entry, err := u.shadow(ctx)
	if err != nil || entry == nil || !u.e.Can("shadow.default_hash") {
		return err
	}
	a, now := u.a, entry.Str("passwd")
	if value.Truth(a.Password) && !a.EmptyPassword {
		none, err := u.e.Exec(ctx, "shadow.default_hash", nil)
		if err != nil {
			return err
		}
		if (a.EnforcePassword || value.Equal(now, none)) && now != value.Str(a.Password) {
			change.Set("passwd", a.Password)
		}
	}
	if a.EmptyPassword && now != "" {
		change.Set("empty_password", true)
	}
	for _, d := range days {
		want := a.day(d.arg)
		if want != nil && (d.arg != "expire" || value.Truth(want)) && !value.Equal(entry.At(d.entry), want) {
			change.Set(d.arg, want)
		}
	}
	if locked := strings.HasPrefix(now, "!"); a.PasswordLock != nil && *a.PasswordLock != locked {
		change.Set("password_lock", *a.PasswordLock)
	}
	return nil
}

// forbidden rejects changes of ids that are not allowed.
func (u *userState) forbidden(have, change *value.Dict) error {
	faults := &value.List{}
	for _, c := range []struct {
		key     string
		allowed bool
		want    any
	}{{"uid", u.a.AllowUIDChange, u.a.UID}, {"gid", u.a.AllowGIDChange, change.At("gid")}} {
		if change.Has(c.key) && !c.allowed {
			faults.Append("Changing " + c.key + " (" + value.Str(have.At(c.key)) + " -> " + value.Str(c.want) + ") not permitted, set allow_" + c.key +
				"_change to True to force this change. Note that this will not change file ownership.")
		}
	}
	if faults.Len() == 0 {
		return nil
	}
	return fn.Errorf("Encountered error checking for needed changes. Additional info follows:\n\n%s", output.Nested(faults))
}

// do calls functions one after the other until one fails.
func (u *userState) do(ctx context.Context, err *error, fun string, kw *value.Dict, args ...any) {
	if *err == nil {
		_, *err = u.e.Exec(ctx, fun, kw, append([]any{u.a.Name}, args...)...)
	}
}

// apply makes the changes.
func (u *userState) apply(ctx context.Context, have, change *value.Dict) (err error) {
	change = change.Clone()
	take := func(key string) (any, bool) {
		v, ok := change.Get(key)
		change.Delete(key)
		return v, ok
	}
	if v, ok := take("passwd"); ok {
		u.do(ctx, &err, "shadow.set_password", nil, v)
	}
	if _, ok := take("empty_password"); ok {
		u.do(ctx, &err, "shadow.del_password", nil)
	}
	if v, ok := take("password_lock"); ok {
		u.do(ctx, &err, map[any]string{true: "shadow.lock_password", false: "shadow.unlock_password"}[v], nil)
	}
	if v, ok := take("date"); ok {
		u.do(ctx, &err, "shadow.set_date", nil, v)
	}
	home, moved := take("home")
	missing, make := take("homeDoesNotExist")
	if make {
		home, moved = missing, true
	}
	if moved {
		u.do(ctx, &err, "user.chhome", value.DictOf("persist", u.a.PersistHome), home)
	}
	if st, e := os.Stat(value.Str(home)); err == nil && make && (e != nil || !st.IsDir()) {
		_, err = u.e.Exec(ctx, "file.mkdir", nil, home, have.At("uid"), have.At("gid"), "0755")
	}
	for _, d := range days {
		if v, ok := take(d.arg); ok {
			u.do(ctx, &err, "shadow.set_"+d.arg, nil, v)
		}
	}
	groups, regrouped := take("groups")
	for k, v := range change.All() {
		u.do(ctx, &err, "user.ch"+value.Str(k), nil, v)
	}
	if regrouped {
		u.do(ctx, &err, "user.chgroups", nil, groups, !u.a.RemoveGroups)
	}
	return err
}

// change changes an existing user, and verifies the result.
func (u *userState) change(ctx context.Context, have, changes *value.Dict) (state.Change, error) {
	before, err := u.shadow(ctx)
	if err == nil {
		err = u.apply(ctx, have, changes)
	}
	if err != nil {
		return state.Change{}, err
	}
	c := state.Change{Diff: value.NewDict(4), Comment: "User " + u.a.Name + " is present and up to date"}
	now, err := info(ctx, u.e, "user", u.a.Name, u.a.Local)
	if err != nil {
		return c, err
	}
	for k, v := range now.All() {
		if !value.Equal(v, have.At(k)) {
			c.Diff.Set(k, v)
		}
	}
	if before != nil && !value.Equal(before.At("passwd"), u.a.Password) {
		after, err := u.shadow(ctx)
		if err != nil {
			return c, err
		}
		for k, v := range after.All() {
			switch {
			case value.Equal(v, before.At(k)):
			case k == "passwd":
				c.Diff.Set(k, redacted)
			default:
				c.Diff.Set(k, v)
			}
		}
	}
	if c.Diff.Len() > 0 {
		c.Comment = "Updated user " + u.a.Name
	}
	u.ids = map[string]any{}
	left, err := u.differs(ctx, now, u.a.GID)
	if err == nil && left.Len() > 0 {
		if left.Has("passwd") {
			left.Set("passwd", redacted)
		}
		err = fn.Errorf("These values could not be changed: %s", value.Str(left))
	}
	if err != nil {
		c.Comment = ""
	}
	return c, err
}

// create adds the user.
func (u *userState) create(ctx context.Context) (state.Change, error) {
	a := u.a
	groups := a.Groups
	if len(u.optional) > 0 {
		groups = value.Strings(append(value.Texts(a.Groups), u.optional...))
	}
	var home any
	if a.Home != "" {
		home = a.Home
	}
	kw := value.DictOf("name", a.Name, "uid", a.UID, "gid", a.GID, "groups", groups, "home", home, "shell", a.Shell, "unique", a.Unique, "system", a.System,
		"createhome", a.Createhome, "nologinit", a.Nologinit, "loginclass", a.Loginclass, "local", a.Local)
	for k, v := range map[string]any{"fullname": a.Fullname, "roomnumber": a.Roomnumber, "workphone": a.Workphone, "homephone": a.Homephone, "other": a.Other} {
		if v != nil {
			kw.Set(k, v)
		}
	}
	if a.Usergroup != nil {
		kw.Set("usergroup", *a.Usergroup)
	}
	ok, err := u.e.Exec(ctx, "user.add", kw)
	if err == nil && ok != true {
		err = fn.Errorf("Failed to create new user %s", a.Name)
	}
	if err != nil {
		return state.Change{}, err
	}
	c := state.Change{Comment: "New user " + a.Name + " created"}
	if c.Diff, err = info(ctx, u.e, "user", a.Name, a.Local); err != nil {
		return c, err
	}
	if !a.Createhome {
		c.Diff.Set("home", "")
	}
	if problem, err := u.passwords(ctx, c.Diff); err != nil {
		return state.Change{Diff: c.Diff}, err
	} else if problem != "" {
		return state.Change{Diff: c.Diff}, fn.Errorf("User %s created but failed to %s", a.Name, problem)
	}
	return c, nil
}

// passwords sets the attributes of a new user in the shadow file.
func (u *userState) passwords(ctx context.Context, diff *value.Dict) (problem string, err error) {
	if !u.e.Can("shadow.info") {
		return "", nil
	}
	a := u.a
	set := func(fun, entry string, want any, text string, args ...any) {
		u.do(ctx, &err, fun, nil, args...)
		if err != nil {
			return
		}
		var now *value.Dict
		if now, err = u.shadow(ctx); err == nil && !value.Equal(now.At(entry), want) {
			problem = text
		}
	}
	switch {
	case value.Truth(a.Password) && !a.EmptyPassword:
		set("shadow.set_password", "passwd", value.Str(a.Password), "set password to "+redacted, a.Password)
		diff.Set("password", redacted)
	case a.EmptyPassword && !value.Truth(a.Password):
		set("shadow.del_password", "passwd", "", "empty password")
		diff.Set("password", "")
	}
	for _, d := range days {
		want := a.day(d.arg)
		if value.Truth(want) || d.arg == "date" && want != nil {
			set("shadow.set_"+d.arg, d.entry, want, "set "+d.words+" to "+value.Str(want), want)
			diff.Set(d.arg, want)
		}
	}
	return problem, err
}

type userAbsentArgs struct {
	Name  string `salt:"name" doc:"name of the user"`
	Purge bool   `salt:"purge" doc:"remove the home and the mail too" default:"false"`
	Force bool   `salt:"force" doc:"even if the user is logged in" default:"false"`
	Local bool   `salt:"local" doc:"the machine's own users, past a directory service" default:"false"`
}

func userAbsent(ctx context.Context, e *state.Env, a userAbsentArgs) (state.Plan, error) {
	have, err := info(ctx, e, "user", a.Name, a.Local)
	if err != nil || have.Len() == 0 {
		return state.Plan{Comment: "User " + a.Name + " is not present"}, err
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "User " + a.Name + " set for removal"},
		Do: func(ctx context.Context) (state.Change, error) {
			groups, err := e.Exec(ctx, "user.list_groups", nil, a.Name)
			if err != nil {
				return state.Change{}, err
			}
			ok, err := e.Exec(ctx, "user.delete", value.DictOf("local", a.Local), a.Name, a.Purge, a.Force)
			if err == nil && !value.Truth(ok) {
				err = fn.Errorf("Failed to remove user %s", a.Name)
			}
			if err != nil {
				return state.Change{}, err
			}
			diff := value.NewDict(2)
			for _, g := range value.Texts(groups) {
				left, err := info(ctx, e, "group", g, false)
				if err != nil {
					return state.Change{Diff: diff}, err
				}
				if left.Len() == 0 {
					diff.Set(g+" group", "removed")
				}
			}
			diff.Set(a.Name, "removed")
			return state.Change{Diff: diff, Comment: "Removed user " + a.Name}, nil
		},
	}}}, nil
}
