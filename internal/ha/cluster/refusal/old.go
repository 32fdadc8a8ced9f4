package refusal

import "strings"

// Compatibility with releases before the code field: they send only the text, and recognize these substrings in it. So the texts of these
// codes must contain them as long as a cluster may have masters of such releases. Only this file interprets the text of a refusal.
const (
	TextNotMember = "is no member of the cluster (any more) in the eyes"
	TextShares    = "still shares a folder that others have left: stop it, run brine cluster unshare there, and start it"
	TextClock     = "the clock of "
)

// codeOfText returns the code of a refusal without the code field.
func codeOfText(reason string) Code {
	switch {
	case strings.Contains(reason, TextShares):
		return Shares
	case strings.Contains(reason, TextClock):
		return Clock
	case strings.Contains(reason, TextNotMember):
		return NotMember
	}
	return Other
}
