package metrics

import (
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
)

// The families of every daemon. Those about the process have the names of
// Prometheus' own client libraries.
var (
	buildInfo = Family{Name: "brine_build_info", Help: "1; the labels say what runs.", Labels: []string{"version", "goversion", "program"}}
	started   = Family{Name: "process_start_time_seconds", Help: "Start of the process, in seconds since 1970."}
	resident  = Family{Name: "process_resident_memory_bytes", Help: "Memory of the process in RAM, in bytes."}
	cpu       = Family{Name: "process_cpu_seconds_total", Kind: Counter, Help: "Processor time of the process, in seconds."}
	openFiles = Family{Name: "process_open_fds", Help: "Open file descriptors."}
	maxFiles  = Family{Name: "process_max_fds", Help: "Limit of open file descriptors."}
	routines  = Family{Name: "go_goroutines", Help: "Goroutines."}
	heap      = Family{Name: "go_memstats_heap_alloc_bytes", Help: "Memory of objects on the heap, in bytes."}
	runtimes  = Family{Name: "go_memstats_sys_bytes", Help: "Memory that the Go runtime has from the system, in bytes."}
)

// ProcessFamilies returns the families of every daemon.
func ProcessFamilies() []*Family {
	return []*Family{&buildInfo, &started, &resident, &cpu, &openFiles, &maxFiles, &routines, &heap, &runtimes}
}

// processStart is the approximate start time of the process. It is computed for
// the first page.
var processStart = sync.OnceValue(func() time.Time {
	// The modification time of /proc/self is not the start time on all kernels.
	var info syscall.Sysinfo_t
	fields := statFields()
	if len(fields) < 20 || syscall.Sysinfo(&info) != nil {
		return time.Time{}
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}
	}
	boot := time.Now().Add(-time.Duration(info.Uptime) * time.Second)
	return boot.Add(time.Duration(ticks) * (time.Second / userHz))
})

// userHz is the kernel's unit of times in /proc. It is the same on all Linux
// architectures that Go supports.
const userHz = 100

// statFields returns the fields of /proc/self/stat after the program's name,
// which may contain spaces.
func statFields() []string {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	_, after, _ := strings.Cut(string(b[max(0, strings.LastIndexByte(string(b), ')')):]), " ")
	return strings.Fields(after)
}

// process writes the families of every daemon.
func process(p *Page, program string) {
	p.Set(&buildInfo, 1, salt.Version, runtime.Version(), program)
	p.Time(&started, processStart())
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			p.Count(&resident, pages*int64(os.Getpagesize()))
		}
	}
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) == nil {
		p.Set(&cpu, time.Duration(use.Utime.Nano()+use.Stime.Nano()).Seconds())
	}
	if d, err := os.Open("/proc/self/fd"); err == nil {
		names, err := d.Readdirnames(-1)
		d.Close()
		if err == nil {
			p.Count(&openFiles, int64(len(names)-1)) // minus the open directory itself
		}
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		p.Set(&maxFiles, float64(limit.Cur))
	}
	p.Count(&routines, int64(runtime.NumGoroutine()))
	// Unlike runtime.ReadMemStats, these do not stop the program.
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(samples)
	for i, f := range []*Family{&heap, &runtimes} {
		if samples[i].Value.Kind() == metrics.KindUint64 {
			p.Set(f, float64(samples[i].Value.Uint64()))
		}
	}
}
