package minion

import (
	"context"
	"time"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/mine"
	"brine/internal/daemons/minion/refresh"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Events on the minion's own bus, under Salt's names.
const (
	tagFireMaster = "fire_master"
	tagEnviron    = "environ_setenv"
)

// fireMaster forwards an event to all masters.
func (m *Minion) fireMaster(e *event.Event) {
	var fire wire.MinionEvent
	wire.View(e.Data, &fire)
	load := value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", fire.Pretag)
	if l := value.Items(fire.Events); l != nil {
		load.Set("events", value.ListOf(l...))
	} else {
		load.Set("tag", fire.Tag)
		load.Set("data", fire.Data)
	}
	m.links.Send(load)
}

// environByEvent sets environment variables of the daemon.
func (m *Minion) environByEvent(e *event.Event) {
	var in wire.SetEnviron
	wire.View(e.Data, &in)
	set := value.DictOf("environ", in.Environ, "false_unsets", in.FalseUnsets, "clear_all", in.ClearAll)
	m.background.Go(func() {
		if _, err := m.funcs.Call(m.background.Context(), m.calls.New(nil, ""), "environ.setenv", nil, set); err != nil {
			m.log.Error("cannot set environment variables", "err", err)
		}
	})
}

func (m *Minion) serveBus(ctx context.Context) {
	if m.busIPC == nil {
		return
	}
	if err := m.busIPC.Serve(ctx); err != nil {
		m.log.Error("event bus failed", "err", err)
	}
}

// openBus registers the services as handlers of bus events, and opens the bus to other
// programs on the host. One bus serves all masters; if a port option is a list, its first
// entry is used.
func (m *Minion) openBus() (err error) {
	own := m.bus.Own()
	own.Handle(m.fireMaster, tagFireMaster)
	own.Handle(m.schedule.ByEvent, schedule.TagManage)
	own.Handle(m.beacons.ByEvent, beacons.TagManage)
	own.Handle(m.refresh.ByEvent, refresh.TagPillar, refresh.TagGrains, refresh.TagModules, refresh.TagBeacons, refresh.TagMatchers)
	own.Handle(m.mine.ByEvent, mine.TagMine)
	own.Handle(m.environByEvent, tagEnviron)
	m.busIPC, err = m.bus.Listen(m.log)
	return err
}

// tasks returns the periodic tasks of the minion itself.
func (m *Minion) tasks() (out []schedule.Task) {
	o := &m.cfg.Options
	if n := o.PingInterval; n > 0 {
		out = append(out, schedule.Task{Every: time.Duration(n) * time.Minute, Do: func(context.Context) { m.links.Fire("minion_ping", "ping") }})
	}
	if n := o.GrainsRefreshEvery; n > 0 {
		out = append(out, schedule.Task{Every: time.Duration(n) * time.Minute, Do: func(context.Context) { m.bus.Report(refresh.TagGrains, value.NewDict(0)) }})
	}
	if fs, ok := o.MineFunctions.(*value.Dict); ok && fs.Len() > 0 && o.MineEnabled && o.MineInterval > 0 {
		out = append(out, schedule.Task{Every: time.Duration(o.MineInterval) * time.Minute, OnStart: true, Do: func(ctx context.Context) { m.mine.Update(ctx, fs) }})
	}
	return out
}

// buildTimed builds the schedule, the beacons and the mine.
func (m *Minion) buildTimed() (err error) {
	o, masterless := &m.cfg.Options, m.cfg.Options.Masterless()
	m.mine = &mine.Mine{ID: m.cfg.ID, Log: m.log, Fire: m.bus.Own().Fire, Send: m.links.Send,
		Call: func(ctx context.Context, j fn.Job) fn.Outcome {
			return m.funcs.Run(ctx, m.calls.New(m.links.WithPillar(), ""), j)
		}}
	m.schedule, err = schedule.New(schedule.Config{
		Options: o.ScheduleOptions, Masterless: masterless, Opts: m.cfg.Opts, Tasks: m.tasks(), Ready: m.readyC,
		Grains: m.grains.Grains, Pillar: m.links.Pillar, Nearest: m.nearestFunction, Job: m.runner.Scheduled, Go: m.background.Go, Report: m.bus.Report, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.beacons, err = beacons.New(beacons.Config{
		Options: o.BeaconOptions, ID: m.cfg.ID, Masterless: masterless, Opts: m.cfg.Opts, Ready: m.readyC, Pillar: m.links.Pillar,
		Running: func() (funs []string) {
			for _, j := range m.jobs.List("") {
				if fun, ok := j.Fun.(string); ok {
					funs = append(funs, fun)
				}
			}
			return funs
		},
		Call: func() (context.Context, *fn.Call) {
			c := m.calls.New(m.links.WithPillar(), "")
			c.Funcs = m.funcs
			c.Prepare()
			return m.background.Context(), c
		},
		Python: m.userBeacons.Beacons(),
		Go:     m.background.Go, Fire: m.links.Fire, Report: m.bus.Report, Log: m.log,
	})
	return err
}

// nearestFunction returns the function that was probably meant by the name of one that does not exist, or "". The
// module may be one of the user's own that is not fetched yet, so that only similar names count.
func (m *Minion) nearestFunction(fun string) string {
	if m.funcs.Has(fun) {
		return ""
	}
	if near := textedit.Nearest(fun, m.funcs.Names()); len(near) > 0 {
		return near[0]
	}
	return ""
}
