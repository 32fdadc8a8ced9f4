package system

import (
	"context"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// program adds programs to a fake machine.
func (f *fake) program(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		f.file(t, "/usr/bin/"+name, "")
		if err := f.Chmod("/usr/bin/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fake) file(t *testing.T, path, text string) {
	t.Helper()
	if err := f.WriteFile(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

const blockdev = "blockdev --getro --getsz --getss --getpbsz --getiomin --getioopt --getalignoff --getmaxsect --getsize --getsize64 --getra --getfra /dev/vda"

const smart = `smartctl 7.3

=== START OF READ SMART DATA SECTION ===
ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE
  5 Reallocated_Sector_Ct   0x0033   100   100   010    Pre-fail  Always       -       0
194 Temperature_Celsius     0x0022   070   052   000    Old_age   Always       -       30 18 45

SMART Error Log not supported
`

const iostat = `Linux 6.1 (web)  11/22/26  _x86_64_  (2 CPU)

avg-cpu:  %user   %nice %idle
           1.00    0.50  98.00

Device            r/s     w/s
vda              1.00    3.00

avg-cpu:  %user   %nice %idle
           3.00    0.50  96.00

Device            r/s     w/s
vda              2.00    4.01
`

func TestDevices(t *testing.T) {
	f := newFake(t)
	f.program(t, "lsblk", "blockdev", "hdparm", "smartctl", "iostat", "mkfs", "sync", "wipefs", "resize2fs")
	f.file(t, "/proc/self/mountinfo", "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /run rw - tmpfs tmpfs rw\n")
	f.answers["lsblk -o fstype /dev/vda"], f.answers["lsblk -o fstype /dev/vdb"] = "FSTYPE\next4", "FSTYPE\n"
	f.answers["df -T /dev/vdb"] = "Filesystem Type 1K-blocks\n/dev/vdb xfs 1"
	f.answers[blockdev], f.exits[strings.Replace(blockdev, "vda", "vdx", 1)] = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11", 1
	f.answers["hdparm -aN /dev/sda"] = "\n/dev/sda:\n readahead     = 256 (on)\n max sectors   = 1000/2000, HPA is enabled\n geometry      = 1/2/3, " +
		"sectors = 4, start = 0\n IO_support    =  1 (32-bit)\n nothing\n"
	f.answers["hdparm -N /dev/sda"] = "/dev/sda:\n max sectors   = 1000/2000, HPA is enabled\n"
	f.answers["hdparm -N /dev/sdb"] = "/dev/sdb:\n max sectors   = 2000/2000, HPA is disabled\n"
	f.answers["smartctl --attributes /dev/sda"] = smart
	f.answers["iostat -x 1 2"], f.answers["iostat -xd 1 5 vda"] = iostat, iostat
	f.exits["wipefs -a /dev/busy"] = 1
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"disk.fstype", []any{"/dev/vda"}, "'ext4'"},
		{"disk.fstype", []any{"/dev/vdb"}, "'xfs'"},
		{"disk.get_fstype_from_path", []any{"/run"}, "'tmpfs'"},
		{"disk.dump", []any{"/dev/vda"},
			"{'getro': '0', 'getsz': '1', 'getss': '2', 'getpbsz': '3', 'getiomin': '4', 'getioopt': '5', 'getalignoff': '6', 'getmaxsect': '7', " +
				"'getsize': '8', 'getsize64': '9', 'getra': '10', 'getfra': '11'}"},
		{"disk.dump", []any{"/dev/vda", "args=[getra]"}, "{'getra': '10'}"},
		{"disk.dump", []any{"/dev/vdx"}, "False"},
		{"disk.tune", []any{"/dev/vda", "read-ahead=10", "read-only=True"}, "{'getra': '10', 'getro': '0'}"},
		{"disk.tune", []any{"/dev/vda", "read-ahead=x", "what=1", "read-write=no"},
			"\"ERROR executing 'disk.tune': Invalid keyword arguments: read-ahead=x, what=1, read-write=False\""},
		{"disk.wipe", []any{"/dev/vda"}, "True"},
		{"disk.wipe", []any{"/dev/busy"}, "False"},
		{"disk.resize2fs", []any{"/dev/vda"}, "True"},
		{"disk.format", []any{"/dev/vda", "inode_size=256", "force=true"}, "True"},
		{"disk.hdparms", []any{"sda", "aN"},
			"{'/dev/sda': {'readahead': [256, 'on'], 'max_sectors': [1000, 2000, 'HPA is enabled'], 'geometry': [1, 2, 3, {'sectors': '4', 'start': " +
				"'0'}], 'io_support': [1, '32-bit']}}"},
		{"disk.hpa", []any{value.ListOf("sda", "/dev/sdb")}, "{'/dev/sda': {'total': 2000, 'visible': 1000, 'hidden': 1000}, '/dev/sdb': {'total': 2000}}"},
		{"disk.hpa", []any{"sda", "20%"}, "None"},
		{"disk.smart_attributes", []any{"sda"},
			"{5: {'attribute_name': 'Reallocated_Sector_Ct', 'flag': '0x0033', 'value': 100, 'worst': 100, 'thresh': 10, 'type': 'Pre-fail', " +
				"'updated': 'Always', 'when_failed': '-', 'raw_value': 0}, " +
				"194: {'attribute_name': 'Temperature_Celsius', 'flag': '0x0022', 'value': 70, 'worst': 52, 'thresh': 0, 'type': 'Old_age', " +
				"'updated': 'Always', 'when_failed': '-', 'raw_value': [30, 18, 45]}}"},
		{"disk.smart_attributes", []any{"sda", "attributes=[5]", "values=[value, type]"}, "{5: {'value': 100, 'type': 'Pre-fail'}}"},
		{"disk.iostat", []any{1, 2}, "{'sys': {'%user': 2.0, '%nice': 0.5, '%idle': 97.0}, 'vda': {'r/s': 1.5, 'w/s': 3.51}}"},
		{"disk.iostat", []any{"disks=vda"}, "{'sys': {'%user': 2.0, '%nice': 0.5, '%idle': 97.0}, 'vda': {'r/s': 1.5, 'w/s': 3.51}}"},
	} {
		if got := value.Repr(f.run(t, c.fun, c.arg...).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
	for _, call := range []string{"blockdev --setra 10 --setro /dev/vda", "mkfs -t ext4 -i 256 -F /dev/vda",
		"hdparm --yes-i-know-what-i-am-doing -Np1600 /dev/sda"} {
		if !slices.Contains(f.calls, call) {
			t.Errorf("%q was not run", call)
		}
	}
	f.calls = nil
	for _, c := range [][]any{
		{"disk.wipe", "-a"}, {"disk.wipe", "sda"}, {"disk.fstype", "-x"}, {"disk.format", "/dev/vda", "fs_type=-x"}, {"disk.hdparms", "sda", "a b"},
		{"disk.smart_attributes", "a b"},
		{"disk.iostat", 0}, {"disk.iostat", "disks=-x"}, {"disk.dump", "/dev/vda /x"}, {"disk.tune", "x", "read-ahead=1"},
	} {
		if o := f.run(t, c[0].(string), c[1:]...); o.Success || len(f.calls) != 0 {
			t.Errorf("%v: %+v, ran %q", c, o, f.calls)
		}
	}
}

func TestLocaleGen(t *testing.T) {
	const supported = "de_DE.UTF-8 UTF-8\nen_IE.UTF-8 UTF-8\n"
	for _, c := range []struct {
		os, program, locale string
		files               map[string]string
		want                any
		call, file, text    string
	}{
		{"Debian", "locale-gen", "de_DE.UTF-8", map[string]string{"/etc/locale.gen": "# all\n# de_DE.UTF-8 UTF-8\n"}, true, "locale-gen de_DE.UTF-8 UTF-8",
			"/etc/locale.gen", "# all\nde_DE.UTF-8 UTF-8\n"},
		{"Debian", "locale-gen", "de_DE.UTF-8 UTF-8", map[string]string{"/etc/locale.gen": "de_DE.UTF-8 UTF-8\n"}, true, "locale-gen de_DE.UTF-8 UTF-8",
			"/etc/locale.gen", "de_DE.UTF-8 UTF-8\n"},
		{"Debian", "locale-gen", "fr_FR.UTF-8", map[string]string{"/etc/locale.gen": ""}, false, "", "/etc/locale.gen", ""},
		{"Debian", "locale-gen", "$(x)", nil, "ERROR executing 'locale.gen_locale': '$(x)' is no name of a locale", "", "/x", ""},
		{"Ubuntu", "locale-gen", "de_DE.UTF-8", nil, true, "locale-gen de_DE.utf8", "/var/lib/locales/supported.d/de", "de_DE.UTF-8\n"},
		{"Rocky", "localedef", "de_DE.UTF-8", nil, true, "localedef --force -i de_DE -f UTF-8 de_DE.UTF-8 --quiet", "/etc/locale.gen", ""},
		{"Rocky", "none", "de_DE.UTF-8", nil, `ERROR: Command "locale-gen" or "localedef" was not found on this system.`, "", "/x", ""},
	} {
		f := newFake(t)
		f.program(t, c.program)
		f.file(t, "/usr/share/i18n/SUPPORTED", supported)
		f.file(t, "/usr/share/i18n/locales/de_DE", "")
		for path, text := range c.files {
			f.file(t, path, text)
		}
		r, err := fn.NewRegistry(nil, Modules(f.Machine)...)
		if err != nil {
			t.Fatal(err)
		}
		o := r.Run(t.Context(), &fn.Call{Grains: fn.Tree{Dict: value.DictOf("os", c.os)}}, fn.Job{Fun: "locale.gen_locale", Arg: []any{c.locale}})
		if ran := strings.Join(f.calls, "|"); o.Return != c.want || ran != c.call || f.Text(c.file) != c.text {
			t.Errorf("%s on %s: %v, ran %q, %q", c.locale, c.os, o.Return, ran, f.Text(c.file))
		}
	}
	f := newFake(t)
	f.program(t, "locale-gen")
	f.file(t, "/usr/share/i18n/locales/de_DE", "")
	f.exits["locale-gen de_DE.UTF-8 UTF-8"], f.answers["locale-gen de_DE.UTF-8 UTF-8"] = 2, "no"
	if o := f.run(t, "locale.gen_locale", "de_DE.UTF-8", "verbose=true"); value.Repr(o.Return) != "{'retcode': 2, 'stdout': 'no', 'stderr': ''}" ||
		o.Retcode != 2 {
		t.Errorf("%+v", o)
	}
}

func TestComputer(t *testing.T) {
	f := newFake(t)
	if o := f.run(t, "system.set_computer_desc", "a \"new\"\nbox"); o.Return != true {
		t.Errorf("%+v", o)
	}
	if got := f.Text("/etc/machine-info"); got != "PRETTY_HOSTNAME=\"a \\\"new\\\"\\nbox\"\n" {
		t.Errorf("%q", got)
	}
	if o := f.run(t, "system.get_computer_desc"); o.Return != "a \"new\"\nbox" {
		t.Errorf("%+v", o)
	}
	f.file(t, "/run/systemd/system/x", "")
	f.program(t, "hostnamectl")
	f.run(t, "system.set_computer_desc", "box")
	if !slices.Equal(f.calls, []string{"hostnamectl set-hostname --pretty -- box"}) {
		t.Errorf("ran %q", f.calls)
	}
}

// other stands in for modules of other families.
func other() fn.Module {
	type pattern struct {
		Value string `salt:"value" doc:"a word"`
	}
	type name struct {
		Hostname string `salt:"hostname" doc:"a name"`
	}
	return fn.Module{Name: "other", Aliases: []string{"config", "network"}, Doc: `x`, Funcs: []fn.Func{
		fn.Of("dot_vals", func(_ context.Context, c *fn.Call, a pattern) (any, error) { return c.Config.Get(a.Value), nil }, `x`),
		fn.Of("mod_hostname", func(_ context.Context, _ *fn.Call, a name) (string, error) { return "to " + a.Hostname, nil }, `x`),
	}}
}

func TestWithOthers(t *testing.T) {
	f := newFake(t)
	f.file(t, "/proc/net/tcp", "  sl  local_address rem_address   st\n   1: 020200C0:C001 0500000A:1199 01 0\n   2: 020200C0:C001 0600000A:0016 01 0\n")
	f.file(t, "/etc/hosts", "10.0.0.5 m1\n10.0.0.6 m2\n")
	r, err := fn.NewRegistry(nil, append(Modules(f.Machine), other())...)
	if err != nil {
		t.Fatal(err)
	}
	call := func(fun string, arg ...any) string {
		c := &fn.Call{Config: fn.Tree{Dict: value.DictOf("status", value.DictOf("status.loadavg.custom", value.ListOf("1-min", "none"), "status.custom", true,
			"status.nothing.custom", value.ListOf("x"), "status.custom.custom", value.ListOf("x")))}}
		return value.Repr(r.Run(t.Context(), c, fn.Job{Fun: fun, Arg: arg}).Return)
	}
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"status.custom", nil, "{'1-min': 0.5, 'none': 'UNKNOWN'}"},
		{"status.master", nil, "None"},
		{"status.master", []any{"m1"}, "True"},
		{"status.master", []any{"10.0.0.5"}, "True"},
		{"status.master", []any{"m2"}, "False"},
		{"system.set_computer_name", []any{"web"}, "'to web'"},
	} {
		if got := call(c.fun, c.arg...); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.fun, c.arg, got, c.want)
		}
	}
}

// TestLoadHere compares with the kernel's load averages, which are rounded to
// two digits and may be slightly older.
func TestLoadHere(t *testing.T) {
	o := func() *value.Dict {
		r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
		if err != nil {
			t.Fatal(err)
		}
		d, _ := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "status.loadavg"}).Return.(*value.Dict)
		return d
	}()
	for _, key := range []string{"1-min", "5-min", "15-min"} {
		if v, ok := o.At(key).(float64); !ok || v < 0 || v*65536 != float64(int64(v*65536)) {
			t.Errorf("%s: %v", key, o.At(key))
		}
	}
}

const dmidecode = "# dmidecode 3.4\nGetting SMBIOS data from sysfs.\nSMBIOS 2.8 present.\n3 structures occupying 500 bytes.\n\n" +
	"Handle 0x0100, DMI type 1, 27 bytes\nSystem Information\n\tManufacturer: QEMU\n\tProduct Name: Standard PC (i440FX, 1996)\n" +
	"\tVersion: pc-i440fx-7.2\n\tSerial Number: 0000000000\n\tUUID: 1dc17a34-3ac6-4b1b-9a2d-9b3a5f1c2d3e\n\tFamily: Not Specified\n\n" +
	"Handle 0x0400, DMI type 4, 42 bytes\nProcessor Information\n\tSocket Designation: CPU 0\n\tFlags:\n\t\tFPU (Floating-point unit on-chip)\n" +
	"\t\tVME (Virtual mode extension)\n\tMax Speed: 2000 MHz\n\tCore Count: 4\n\tPart Number: 0042\n\tCharacteristics: None\n\n" +
	"Handle 0x7F00, DMI type 127, 4 bytes\nEnd Of Table\n\n"

// TestSMBIOS reads what dmidecode prints. The results are those of stock Salt, which however
// loses the last value of each record.
func TestSMBIOS(t *testing.T) {
	f := newFake(t)
	f.program(t, "dmidecode")
	f.answers["dmidecode"], f.answers["dmidecode -t 4"] = dmidecode, dmidecode[strings.Index(dmidecode, "Handle 0x0400"):strings.Index(dmidecode, "Handle 0x7F00")]
	f.answers["dmidecode -s system-manufacturer"] = "# SMBIOS implementations newer\nQEMU\n"
	f.answers["dmidecode -s system-uuid"], f.answers["dmidecode -s baseboard-serial-number"] = "1dc17a34-3ac6\n", "To be filled by O.E.M.\n"
	system := "{'handle': '0x0100', 'description': 'System Information', 'type': 1, 'data': {'manufacturer': 'QEMU', " +
		"'product_name': 'Standard PC (i440FX, 1996)', 'version': 'pc-i440fx-7.2', 'uuid': '1dc17a34-3ac6-4b1b-9a2d-9b3a5f1c2d3e'}}"
	cpu := "{'handle': '0x0400', 'description': 'Processor Information', 'type': 4, 'data': {'socket_designation': 'CPU 0', " +
		"'flags': ['FPU (Floating-point unit on-chip)', 'VME (Virtual mode extension)'], 'max_speed': '2000 MHz', 'core_count': 4, 'part_number': '0042'}}"
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"smbios.get", []any{"system-manufacturer"}, "'QEMU'"},
		{"smbios.get", []any{"system-uuid"}, "None"},
		{"smbios.get", []any{"baseboard-serial-number"}, "None"},
		{"smbios.get", []any{"baseboard-serial-number", "clean=False"}, "'To be filled by O.E.M.'"},
		{"smbios.records", nil, "[" + system + ", " + cpu + "]"},
		{"smbios.records", []any{4}, "[" + cpu + "]"},
		{"smbios.records", []any{4, "core_count,max_speed"}, "[{'handle': '0x0400', 'description': 'Processor Information', 'type': 4, 'data': " +
			"{'max_speed': '2000 MHz', 'core_count': 4}}]"},
		{"smbios.records", []any{"fields=[family]", "clean=False"}, "[{'handle': '0x0100', 'description': 'System Information', 'type': 1, " +
			"'data': {'family': 'Not Specified'}}, {'handle': '0x0400', 'description': 'Processor Information', 'type': 4}, " +
			"{'handle': '0x7F00', 'description': 'End Of Table', 'type': 127}]"},
	} {
		if got := value.Repr(f.run(t, c.fun, c.arg...).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
}
