package api

import (
	"net/http"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Runners that store what users save.
const (
	savedPut       = "saved.put"
	savedPutPublic = "saved.put_public"
	savedRemove    = "saved.remove"
	savedRemoveAny = "saved.remove_any"
)

// save stores a target, a job or a view: {"kind", "name", "data", "public"}.
func (v *v1) save(c *call) (any, error) {
	in, ok := c.body.data.(*value.Dict)
	kind, isKind := in.At("kind").(string)
	name, isName := in.At("name").(string)
	data, isData := in.At("data").(*value.Dict)
	public, isBool := in.At("public").(bool)
	if !ok || len(c.rest) > 0 || !isKind || !isName || !isData || in.Has("public") && !isBool {
		return nil, &failure{http.StatusBadRequest, `the body must be a map with "kind" (target, job or view), "name", "data", a map, and "public", true or false`}
	}
	fun := savedPut
	if public {
		fun = savedPutPublic
	}
	out, err := v.lookups.look(c, fun, value.DictOf("kind", kind, "name", name, "data", data))
	if err == nil {
		c.status = http.StatusCreated
	}
	return out, err
}

// removeSaved removes what the user saved, or what another user saved with the permission for that.
func (v *v1) removeSaved(c *call) (any, error) {
	args := value.DictOf("id", c.part())
	out, err := v.lookups.look(c, savedRemove, args)
	if f := failureOf(err); err == nil || f == nil || f.status != http.StatusNotFound {
		return out, err
	}
	out, e := v.lookups.look(c, savedRemoveAny, args)
	if salt.KindOf(e) == salt.Denied {
		return nil, err
	}
	return out, e
}
