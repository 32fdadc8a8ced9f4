package certs

import (
	"bytes"
	"slices"

	"brine/internal/py/value"
)

// Differs returns what of a certificate must change to become as wanted. serial is the serial
// number as the user gave it, nil if not given.
func (c *Certificate) Differs(want *Issue, serial any) (*value.Dict, error) {
	d := value.NewDict(6)
	if serial != nil && want.Serial.Cmp(c.Serial) != 0 {
		d.Set("serial_number", serial)
	}
	if !SamePublic(c.PublicKey, want.PublicKey) {
		d.Set("private_key", true)
	}
	if want.CA != nil {
		ok, err := c.SignedBy(want.CA.PublicKey)
		if err != nil {
			return nil, err
		}
		if !ok {
			d.Set("signing_private_key", true)
		}
	}
	if !want.Subject.Equal(c.Subject) {
		d.Set("subject_name", want.Subject.String())
	}
	if !want.Issuer.Equal(c.Issuer) {
		d.Set("issuer_name", want.Issuer.String())
	}
	if x := compareExtensions(c.Extensions, want.Extensions); x != nil {
		d.Set("extensions", x)
	}
	return d, nil
}

// Differs returns what of a request must change to become as wanted.
func (r *Request) Differs(want *Issue) *value.Dict {
	d := value.NewDict(3)
	if !SamePublic(r.PublicKey, want.PublicKey) {
		d.Set("private_key", true)
	}
	if !want.Subject.Equal(r.Subject) {
		d.Set("subject_name", want.Subject.String())
	}
	if x := compareExtensions(r.Extensions, want.Extensions); x != nil {
		d.Set("extensions", x)
	}
	return d
}

// Differs returns what of a list must change to become as wanted. auto says that its number is
// incremented automatically.
func (l *List) Differs(want *Revoke, auto bool) (*value.Dict, error) {
	d := value.NewDict(4)
	if !want.Issuer().Equal(l.Issuer) {
		d.Set("issuer_name", want.Issuer().String())
	}
	key, err := want.SigningKey()
	if err != nil {
		return nil, err
	}
	ok, err := l.SignedBy(key)
	if err != nil {
		return nil, err
	}
	if !ok {
		d.Set("public_key", true)
	}
	changes := value.DictOf("added", &value.List{}, "changed", &value.List{}, "removed", &value.List{})
	add := func(key string, r Revocation) { changes.At(key).(*value.List).Append(SerialHex(r.Serial)) }
	find := func(all []Revocation, r Revocation) (Revocation, bool) {
		i := slices.IndexFunc(all, func(x Revocation) bool { return x.Serial.Cmp(r.Serial) == 0 })
		if i < 0 {
			return Revocation{}, false
		}
		return all[i], true
	}
	found := false
	for _, r := range want.Revoked {
		now, ok := find(l.Revoked, r)
		if !ok {
			add("added", r)
			found = true
		} else if compareExtensions(now.Extensions, r.Extensions) != nil {
			add("changed", r)
			found = true
		}
	}
	for _, r := range l.Revoked {
		if _, ok := find(want.Revoked, r); !ok {
			add("removed", r)
			found = true
		}
	}
	if found {
		d.Set("revocations", changes)
	}
	now := l.Extensions
	if auto {
		now = slices.DeleteFunc(slices.Clone(now), func(e Extension) bool { return e.ID.String() == "2.5.29.20" })
	}
	if x := compareExtensions(now, want.Extensions); x != nil {
		d.Set("extensions", x)
	}
	return d, nil
}

// compareExtensions returns the names of the extensions that must change, nil for none.
func compareExtensions(now, want []Extension) *value.Dict {
	d := value.DictOf("added", &value.List{}, "changed", &value.List{}, "removed", &value.List{})
	found := false
	add := func(key string, e Extension) {
		found = true
		d.At(key).(*value.List).Append(extensionName(e.ID))
	}
	same := func(e Extension) func(Extension) bool { return func(x Extension) bool { return x.ID.Equal(e.ID) } }
	for _, e := range want {
		switch i := slices.IndexFunc(now, same(e)); {
		case i < 0:
			add("added", e)
		case now[i].Critical != e.Critical || !bytes.Equal(now[i].Value, e.Value):
			add("changed", e)
		}
	}
	for _, e := range now {
		if !slices.ContainsFunc(want, same(e)) {
			add("removed", e)
		}
	}
	if !found {
		return nil
	}
	return d
}
