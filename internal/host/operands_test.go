package host

import (
	"errors"
	"slices"
	"testing"
)

func TestOperands(t *testing.T) {
	if got := Operands("a", "b-", ""); !slices.Equal(got, []string{"a", "b-", ""}) {
		t.Error(got)
	}
	if got := Operands("a", "-b"); !slices.Equal(got, []string{"--", "a", "-b"}) {
		t.Error(got)
	}
	if err := NoOption("gem", "a", "b-", ""); err != nil {
		t.Error(err)
	}
	var invalid *InvalidError
	if err := NoOption("gem", "a", "-b"); !errors.As(err, &invalid) {
		t.Error(err)
	}
}
