// Package sdb looks up references such as sdb://profile/key. The options or the pillar have the
// profile, whose setting driver names what stores the values: a module of the user, or a driver of
// this package.
package sdb

import (
	"context"
	"crypto/rand"
	"math/big"
	"strings"

	"brine/internal/base/registry"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Prefix is the beginning of a reference.
const Prefix = "sdb://"

// The functions of drivers.
const (
	funcGet    = "get"
	funcSet    = "set"
	funcDelete = "delete"
)

// driver is a driver of this package. A nil function does not exist.
type driver struct {
	get    func(ctx context.Context, c *fn.Call, key string, profile *value.Dict) (any, error)
	set    func(ctx context.Context, c *fn.Call, key string, v any, profile *value.Dict) (any, error)
	delete func(ctx context.Context, c *fn.Call, key string, profile *value.Dict) (any, error)
}

var drivers = registry.New[driver]("driver of sdb")

// Names returns the names of the drivers of this package.
func Names() []string { return drivers.Names() }

// reference is a parsed reference.
type reference struct {
	driver, key string
	profile     *value.Dict
}

// parse reads a reference. If it is none, or has no profile, problem says why in Salt's words.
func parse(c *fn.Call, uri any) (r reference, problem string) {
	text, ok := uri.(string)
	if !ok || !strings.HasPrefix(text, Prefix) {
		return r, `SDB uri must start with "sdb://"`
	}
	name, key, _ := strings.Cut(text[len(Prefix):], "/")
	if key == "" {
		return r, "SDB uri must have a profile name as a first part of the uri before the /"
	}
	profile := c.Config.Get(name)
	if !value.Truth(profile) {
		profile = c.Pillar.Get(name)
	}
	d, _ := profile.(*value.Dict)
	if d == nil || !d.Has("driver") {
		return r, `SDB profile "` + name + `" wasnt found in the minion configuration`
	}
	return reference{value.Str(d.At("driver")), key, d}, ""
}

// Get returns the value of a reference. If uri is no reference, or there is no such profile, the
// result is uri itself; with strict it is an error.
func Get(ctx context.Context, c *fn.Call, uri any, strict bool) (any, error) {
	r, problem := parse(c, uri)
	switch {
	case problem == "":
		return call(ctx, c, r, funcGet)
	case strict:
		return nil, &fn.InvocationError{Err: fn.Errorf("%s", problem)}
	}
	return uri, nil
}

// Set stores a value. The result is false if uri is no reference, or there is no such profile.
func Set(ctx context.Context, c *fn.Call, uri, v any) (any, error) {
	r, problem := parse(c, uri)
	if problem != "" {
		return false, nil
	}
	return call(ctx, c, r, funcSet, v)
}

// Delete removes a value. The result is false if uri is no reference, or there is no such profile.
func Delete(ctx context.Context, c *fn.Call, uri any) (any, error) {
	r, problem := parse(c, uri)
	if problem != "" {
		return false, nil
	}
	return call(ctx, c, r, funcDelete)
}

// Chars are the characters of a random value.
const Chars = "abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)"

// GetOrSet returns the value of a reference. If there is none, it stores a random one of chars. The
// result is false if uri is no reference.
func GetOrSet(ctx context.Context, c *fn.Call, uri any, length int, chars string) (any, error) {
	text, ok := uri.(string)
	if !ok || !strings.HasPrefix(text, Prefix) {
		return false, nil
	}
	v, err := Get(ctx, c, uri, false)
	if err != nil || v != nil {
		return v, err
	}
	letters := []rune(chars)
	if len(letters) == 0 {
		return nil, &fn.InvocationError{Err: fn.Errorf("a random value needs characters to choose from")}
	}
	var made strings.Builder
	for range length {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			return nil, err
		}
		made.WriteRune(letters[n.Int64()])
	}
	_, err = Set(ctx, c, uri, made.String())
	return made.String(), err
}

// call calls a function of a driver: get, set or delete.
func call(ctx context.Context, c *fn.Call, r reference, function string, args ...any) (any, error) {
	if c.SDB != nil && c.SDB.Has(r.driver) {
		return c.SDB.Call(ctx, c, r.driver, function, append([]any{r.key}, args...), r.profile)
	}
	d, ok := drivers.Lookup(r.driver)
	if !ok {
		return nil, fn.Errorf("there is no driver %q for sdb:// references; use one of %s, or fetch one of your own with saltutil.sync_sdb",
			r.driver, strings.Join(Names(), ", "))
	}
	switch {
	case function == funcGet:
		return d.get(ctx, c, r.key, r.profile)
	case function == funcSet && d.set != nil && len(args) == 1:
		return d.set(ctx, c, r.key, args[0], r.profile)
	case function == funcDelete && d.delete != nil:
		return d.delete(ctx, c, r.key, r.profile)
	}
	return nil, fn.Errorf("the driver %s for sdb:// references has no function %s", r.driver, function)
}
