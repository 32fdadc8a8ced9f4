package system

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/crontabs"
	"brine/internal/host"
)

func init() { units.Register("cron", cronModule) }

func cronModule(m *host.Machine) fn.Module {
	x := crontabs.Crontabs{M: m}
	when := func(fn.Reader) (string, bool) {
		if m.Which("crontab") == "" {
			return "Cannot load cron module: crontab command not found", false
		}
		return "", true
	}
	return fn.Module{Name: "cron", When: when, Doc: `Jobs that cron runs.`, Funcs: []fn.Func{
		fn.Of("raw_cron", x.Raw, `Return the text of a user's crontab.`, fn.Example("salt '*' cron.raw_cron root")),
		fn.Of("list_tab", x.List, `Return what a user's crontab holds.`, fn.Example("salt '*' cron.list_tab root")),
		fn.Of("ls", x.List, `Same as cron.list_tab.`, fn.Example("salt '*' cron.ls root")),
		fn.Of("get_entry", x.Entry, `Return a job by its identifier or command, or false.`, fn.Example("salt '*' cron.get_entry root identifier=task1")),
		fn.Of("set_job", x.SetJob, `Set a job: new, updated or present.`, fn.Example("salt '*' cron.set_job root '*' '*' '*' '*' 1 /usr/local/weekly")),
		fn.Of("set_special", x.SetSpecial, `Set a job with a time such as @daily: new, updated or present.`,
			fn.Example("salt '*' cron.set_special root @hourly 'echo foobar'")),
		fn.Of("rm_job", x.RmJob, `Remove a job: removed or absent.`, fn.Example("salt '*' cron.rm_job root /usr/local/weekly")),
		fn.Of("rm", x.RmJob, `Same as cron.rm_job.`, fn.Example("salt '*' cron.rm root /usr/bin/test_cron")),
		fn.Of("rm_special", x.RmSpecial, `Remove a job with a time such as @daily: removed or absent.`,
			fn.Example("salt '*' cron.rm_special root /usr/bin/foo")),
		fn.Of("set_env", x.SetEnv, `Set a variable of the environment: new, updated or present.`,
			fn.Example("salt '*' cron.set_env root MAILTO user@example.com")),
		fn.Of("rm_env", x.RmEnv, `Remove a variable of the environment: removed or absent.`, fn.Example("salt '*' cron.rm_env root MAILTO")),
		fn.Of("write_cron_file", x.Write, `Replace a user's crontab by a file, and say whether that worked.`,
			fn.Example("salt '*' cron.write_cron_file root /tmp/new_cron")),
		fn.Of("write_cron_file_verbose", x.WriteVerbose, `Replace a user's crontab by a file, and return what crontab says.`,
			fn.Example("salt '*' cron.write_cron_file_verbose root /tmp/new_cron")),
	}}
}
