package system

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestCPUCountsChildren(t *testing.T) {
	from, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// One child that the process has waited for, and one that is still running.
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	done, err := CPU(os.Getpid())
	if err != nil || done <= from {
		t.Errorf("%v before a child worked, %v after it: %v", from, done, err)
	}
	c := exec.Command("sh", "-c", "while :; do :; done")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if now, err := CPU(os.Getpid()); err == nil && now >= done+50*time.Millisecond {
			return
		}
	}
	t.Error("a child that works is not seen")
}

func TestMemory(t *testing.T) {
	debug.FreeOSMemory() // prevent the reuse of memory left by other tests
	before, err := MemoryOf(os.Getpid())
	if err != nil || before.PSS < 1<<20 || before.Own > before.PSS || before.Own < 1<<19 {
		t.Fatalf("this process takes %+v: %v", before, err)
	}
	big := make([]byte, 64<<20)
	for i := range big {
		big[i] = 1
	}
	after, err := MemoryOf(os.Getpid())
	if err != nil || after.PSS-before.PSS < 32<<20 || after.Own-before.Own < 32<<20 {
		t.Errorf("%+v became %+v with %d more: %v", before, after, len(big), err)
	}
	if _, err := MemoryOf(1 << 30); err == nil {
		t.Error("a process that is not there has memory")
	}
}

func TestFiles(t *testing.T) {
	if n, err := Files(); err != nil || n == 0 {
		t.Errorf("%d open files: %v", n, err)
	}
}

func TestBytes(t *testing.T) {
	before, err := Bytes(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 20
	if err := os.WriteFile(t.TempDir()+"/f", make([]byte, n), 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := Bytes(os.Getpid())
	if err != nil || after-before < n {
		t.Errorf("%d bytes, %v", after-before, err)
	}
}

// TestResident: the peak of a child is its own, regardless of its parent's size.
func TestResident(t *testing.T) {
	big := make([]byte, 64<<20)
	for i := range big {
		big[i] = 1
	}
	own, most, err := ResidentOf(os.Getpid())
	if err != nil || own < 64<<20 || most < own {
		t.Errorf("this process has %d bytes of its own, at most %d: %v", own, most, err)
	}
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	own, most, err = ResidentOf(c.Process.Pid)
	if err != nil || most > 16<<20 || own > most {
		t.Errorf("cat has %d bytes of its own, at most %d: %v", own, most, err)
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ResidentOf(c.Process.Pid); err == nil {
		t.Error("a process that has ended has memory")
	}
	runtime.KeepAlive(big)
}
