package remote

import "testing"

func TestPostgresSecret(t *testing.T) {
	for _, c := range []struct {
		kept, password string
		how            any
		want           bool
	}{
		{"md5fc2b8faeb5d5b5cc4b2d9ee3a9e6d6c6", "s3cret", "md5", false},
		{"md5x", "md5x", nil, true},
		{"plain", "plain", false, true},
		// The example of RFC 7677: user "user", password "pencil".
		{"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=", "pencil",
			"scram-sha-256", true},
		{"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=", "pen",
			"scram-sha-256", false},
		{"SCRAM-SHA-256$0:W22ZaJ0SNY7soEsUEjb6gQ==$x:y", "pencil", "scram-sha-256", false},
		{"", "x", "scram-sha-256", false},
	} {
		if got := IsPostgresSecret(c.kept, "joe", c.password, c.how); got != c.want {
			t.Errorf("%q of %q by %v: %v", c.kept, c.password, c.how, got)
		}
	}
	for _, how := range []any{nil, true, "md5", "scram-sha-256", false} {
		kept, err := PostgresSecret("joe", "s3cret", how)
		if err != nil || !IsPostgresSecret(kept, "joe", "s3cret", how) {
			t.Errorf("%v: %q is not of the password: %v", how, kept, err)
		}
	}
	if _, err := PostgresSecret("joe", "x", "rot13"); err == nil {
		t.Error("an unknown algorithm is taken")
	}
}
