package wire_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/net/wire"
	"brine/test/fuzztest"
	"brine/test/fuzztest/messages"
)

// conversations are all messages of this package. A message that is missing here is
// not fuzzed: TestMessagesAreListed finds it.
var conversations = map[string][]any{
	"auth": {wire.SignIn{}, wire.Signed{}, wire.Refusal{}, wire.Unsigned{}, wire.Acceptance{}, wire.Endorsement{},
		wire.Login{}, wire.TokenRequest{}, wire.Token{}, wire.Credentials{}},
	"publish": {wire.Publish{}, wire.Published{}, wire.PublishedSite{}, wire.ClearReply{}, wire.JobStates{}, wire.States{}, wire.Failure{}, wire.PublishKwargs{},
		wire.Envelope{}, wire.Clear{}, wire.Job{}, wire.Low{}, wire.PeerPublish{}, wire.PeerReturns{}},
	"return": {wire.StateResult{},
		wire.Return{}, wire.JobEvent{}, wire.Head{}, wire.SyndicReturn{}, wire.SyndicEntry{}, wire.SignedRecord{}, wire.JobRecord{}, wire.Parcel{}},
	"event": {wire.MinionEvent{}, wire.Fired{}, wire.Present{}, wire.AuthEvent{}, wire.ManageBeacons{},
		wire.ManageSchedule{}, wire.Refresh{}, wire.Refreshed{}, wire.SetEnviron{}},
	"mine":   {wire.Mine{}, wire.MineGet{}, wire.MineDelete{}, wire.MineEntry{}},
	"files":  {wire.FilePush{}, wire.MasterOpts{}, wire.TopData{}, wire.TopOpts{}},
	"pillar": {wire.Pillar{}},
	"queue": {wire.Missed{}, wire.MissedJobs{}, wire.AboutJob{}, wire.Recorded{}, wire.PublishedRecord{}, wire.RunningJobs{}, wire.NotStored{},
		wire.Standing{}, wire.StandingMaster{}, wire.StandingChange{}, wire.StandingAnswer{}, wire.MembersAnswer{}, wire.IDs{}},
	"cluster": {wire.AuditQuestion{}, wire.AuditAnswer{}, wire.MasterLoad{},
		wire.SeenReport{}, wire.DepartedQuestion{}, wire.DepartedAnswer{}, wire.ApprovalDecision{}, wire.ApprovalDecided{},
		wire.FetchedReport{}, wire.StageQuestion{}, wire.StageAnswer{}, wire.ContentsQuestion{}, wire.ContentsAnswer{},
		wire.ChosenRevision{}, wire.Digest{}, wire.SumsMessage{}, wire.ReturnsQuestion{}, wire.ReturnsAnswer{}, wire.ReleaseAnswer{}, wire.VoterMessage{}},
	"hot": {wire.HotQuestion{}, wire.HotAnswer{}, wire.HotRequest{}, wire.HotPicture{}, wire.HotFiles{}, wire.HotDecision{},
		wire.Approval{}, wire.ApprovalShown{}, wire.WheelDone{}, wire.PillarOf{}},
	"work": {wire.Run{}, wire.Look{}, wire.Looked{}, wire.Arguments{}, wire.Started{}, wire.Wheel{}, wire.Ran{}, wire.WheelAnswer{}, wire.ClusterWork{},
		wire.Printed{}},
	"federation": {wire.Sealed{}, wire.SealedCert{}, wire.SealedIdentity{}, wire.SealedBody{}, wire.SiteCommand{}, wire.SiteStored{}, wire.SiteReturns{},
		wire.SiteSummary{}, wire.SiteConfirmed{}, wire.SitePresence{}, wire.SiteClock{}, wire.SiteAsk{}, wire.SiteRecall{}, wire.SiteEvent{}, wire.SiteList{},
		wire.HubJob{}, wire.HubKey{}, wire.HubKeys{}},
}

// FuzzAuth fuzzes sign-ins, and the tokens of users.
func FuzzAuth(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["auth"]...)
}

// FuzzPublish fuzzes jobs on their way to minions.
func FuzzPublish(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["publish"]...)
}

// FuzzReturn fuzzes returns, and the records that go with them.
func FuzzReturn(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["return"]...)
}

// FuzzEvent fuzzes events of minions.
func FuzzEvent(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["event"]...)
}

// FuzzMine fuzzes the mine.
func FuzzMine(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["mine"]...)
}

// FuzzFiles fuzzes files that minions push.
func FuzzFiles(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["files"]...)
}

// FuzzPillar fuzzes requests for pillars.
func FuzzPillar(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["pillar"]...)
}

// FuzzQueue fuzzes Brine's own requests of minions.
func FuzzQueue(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["queue"]...)
}

// FuzzCluster fuzzes questions between masters.
func FuzzCluster(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["cluster"]...)
}

// FuzzWork fuzzes runners and wheel functions.
func FuzzWork(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["work"]...)
}

// FuzzFederation fuzzes messages between a hub and its sites.
func FuzzFederation(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["federation"]...)
}

// FuzzHot fuzzes questions between hot masters.
func FuzzHot(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	messages.Fuzz(f, recorded(f), conversations["hot"]...)
}

// recorded are loads of requests that a stock minion has sent.
func recorded(f *fuzztest.F) (out [][]byte) {
	f.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "stock_requests.json"))
	if err != nil {
		f.Fatal(err)
	}
	var all []struct{ Case, Load string }
	if err := json.Unmarshal(b, &all); err != nil || len(all) == 0 {
		f.Fatalf("%d recordings: %v", len(all), err)
	}
	for _, r := range all {
		load, err := base64.StdEncoding.DecodeString(r.Load)
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, load)
	}
	return out
}
