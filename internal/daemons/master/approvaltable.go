package master

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"brine/internal/base/salt"
	"brine/internal/store/consoledb"
)

// approvalTableEvery is the interval of exchanges, approvalTablePause that after a failure.
const approvalTableEvery, approvalTablePause = time.Second, 4 * time.Second

// maxApprovalMinions bounds the list of minions of a job in bytes. Users whose permissions have targets cannot decide at other masters on jobs with
// a longer one.
const maxApprovalMinions = 1 << 20

// minionsOf returns the minions of a job for its row, "" if they are too many.
func (a *approvals) minionsOf(f *asked) string {
	o, _ := f.d.orderOf()
	if o == nil {
		return ""
	}
	ids, _, err := a.access.targets.resolve(o.targetType(), o.Tgt, "")
	if b, e := json.Marshal(ids); err == nil && e == nil && len(b) <= maxApprovalMinions {
		return string(b)
	}
	return ""
}

// runTable exchanges until ctx ends.
func (a *approvals) runTable(ctx context.Context) {
	pause := approvalTableEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = approvalTableEvery
		within, cancel := context.WithTimeout(ctx, 6*a.table.timeout)
		err := a.exchange(within)
		cancel()
		if err != nil && ctx.Err() == nil {
			pause = approvalTablePause
			a.table.log.Log(slog.LevelWarn, "cannot exchange jobs that wait for approval with the console_store; retrying", "err", err)
		}
	}
}

// exchange reads the rows that have changed, and brings the jobs of this master and their rows to the same state.
func (a *approvals) exchange(ctx context.Context) error {
	t := a.table
	versions, err := t.db.ApprovalVersions(ctx)
	if err != nil {
		return err
	}
	var news []string
	t.mu.Lock()
	for id, v := range versions {
		if t.versions[id] != v || t.rows[id].ID == "" {
			news = append(news, id)
		}
	}
	t.mu.Unlock()
	read := map[string]consoledb.Approval{}
	if err := t.db.EachApproval(ctx, news, func(row consoledb.Approval) { read[row.ID] = row }); err != nil {
		return err
	}
	t.mu.Lock()
	for id := range t.rows {
		if _, ok := versions[id]; !ok {
			delete(t.rows, id)
		}
	}
	for id, row := range read {
		t.rows[id] = row
	}
	t.versions = versions
	t.mu.Unlock()

	a.mu.Lock()
	all, err := a.store.All()
	a.mu.Unlock()
	if err != nil {
		return err
	}
	for _, r := range all {
		d, ok := readApproval(r)
		if !ok || d.Home != a.store.By() || !a.ageWithin(&d, approvalKept) {
			continue
		}
		if err := a.settle(ctx, &asked{id: r.Name, owner: r.Owner, d: &d}); err != nil {
			return err
		}
	}
	return nil
}

// settle brings a job of this master and its row to the same state. Of two states the later one counts, and a rejection instead of an approval.
func (a *approvals) settle(ctx context.Context, f *asked) error {
	a.table.mu.Lock()
	row, there := a.table.rows[f.id]
	a.table.mu.Unlock()
	if !there {
		if !f.d.Shared && !a.waits(f.d) {
			return nil // it was decided before the server was reachable
		}
		return a.publish(ctx, f)
	}
	if row.Home != f.d.Home {
		return nil // not of a master
	}
	proven, minions := a.table.proofs.proves(row), row.Minions
	switch {
	case !proven:
		a.table.refuse(row)
		minions = ""
	case approvalRanks[row.State] > approvalRanks[f.d.State]:
		return a.adopt(f, row)
	}
	text, err := json.Marshal(f.d)
	if err != nil || proven && f.d.State == row.State && f.d.By == row.By && string(text) == row.Record {
		return err
	}
	now, err := a.rowOf(f, minions)
	if err != nil {
		return err
	}
	return a.table.db.ChangeApproval(ctx, now, row.State)
}

// publish adds a job of this master to the table. From before that on decisions count only if they are recorded there.
func (a *approvals) publish(ctx context.Context, f *asked) error {
	a.mu.Lock()
	owner, d, err := a.find(f.id)
	if err != nil || d == nil || !d.Shared && !a.waits(d) {
		a.mu.Unlock()
		return err
	}
	if !d.Shared {
		d.Shared = true
		_, err = a.put("", owner, f.id, d)
	}
	a.mu.Unlock()
	if err != nil {
		return err
	}
	f = &asked{id: f.id, owner: owner, d: d}
	row, err := a.rowOf(f, "")
	if err != nil {
		return err
	}
	return a.table.db.AddApproval(ctx, row)
}

// adopt takes the state of a row for a job of this master.
func (a *approvals) adopt(f *asked, row consoledb.Approval) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	owner, d, err := a.find(f.id)
	if err != nil || d == nil || approvalRanks[row.State] <= approvalRanks[d.State] {
		return err
	}
	if row.State == approvalGranted && (row.By == "" || salt.SamePerson(row.By, owner)) {
		a.table.refuse(row)
		return nil
	}
	d.State, d.By = row.State, cut(row.By)
	_, err = a.put("", owner, f.id, d)
	return err
}
