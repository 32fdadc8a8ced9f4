package system

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/host"
	fs "brine/internal/host/disk"
	"brine/internal/py/value"
)

// devices returns the functions for one block device.
func (d disk) devices() []fn.Func {
	return []fn.Func{
		fn.Of("fstype", d.fsType, `Return the type of the file system on a device, or an empty text.`, fn.Example("salt '*' disk.fstype /dev/sdX1")),
		fn.Of("get_fstype_from_path", d.fsTypeOfPath, `Return the type of the file system that holds a path.`,
			fn.Example("salt '*' disk.get_fstype_from_path /root")),
		fn.Of("dump", d.dump, `Return what blockdev(8) knows of a device, or false.`, fn.Example("salt '*' disk.dump /dev/sda1")),
		fn.Of("tune", d.tune, `Set attributes of a device: read-ahead, filesystem-read-ahead, read-only, read-write.`,
			fn.Example("salt '*' disk.tune /dev/sda1 read-ahead=1024 read-write=True")),
		fn.Of("wipe", d.wipe, `Remove the signatures of a device, with which goes what it held.`, fn.Example("salt '*' disk.wipe /dev/sda1")),
		fn.Of("format", d.format, `Make a file system on a device. What it held is lost.`, fn.Example("salt '*' disk.format /dev/sdX1")),
		fn.Of("resize2fs", d.resize, `Have an ext file system fill its device.`, fn.Example("salt '*' disk.resize2fs /dev/sda1")),
		fn.Of("hdparms", d.hdparms, `Return what hdparm(8) knows of disks.`, fn.Example("salt '*' disk.hdparms '[sda, sdb]'")),
		fn.Of("hpa", d.hpa, `Return the sectors of disks and how many are hidden, or hide all but some.`, fn.Example("salt '*' disk.hpa /dev/sda")),
		fn.Of("smart_attributes", d.smart, `Return the SMART attributes of a disk by number.`,
			fn.Example("salt '*' disk.smart_attributes /dev/sda attributes='[5, 187]'")),
		fn.Of("iostat", d.iostat, `Return averages of what iostat(1) tells of processors and disks.`, fn.Example("salt '*' disk.iostat 1 5 disks=sda")),
	}
}

type diskArgs struct {
	Device string `salt:"device" doc:"path of the device"`
}

// checkDevice rejects names that a program would take for an option.
func checkDevice(device string) error {
	if !strings.HasPrefix(device, "/") || strings.ContainsAny(device, " \n\x00") {
		return fn.Invalidf("a device is a path such as /dev/sda, not %q", device)
	}
	return nil
}

// do runs a program on a device.
func (d disk) do(ctx context.Context, device, program string, args ...string) (host.Output, error) {
	if err := checkDevice(device); err != nil {
		return host.Output{}, err
	}
	out, err := d.m.Do(ctx, program, append(args, device)...)
	if err != nil {
		return out, fn.Errorf("cannot run %s: %w", program, err)
	}
	return out, nil
}

// ok reports whether a program succeeded, and logs its failure.
func (d disk) ok(c *fn.Call, out host.Output, err error) (bool, error) {
	if err == nil && out.Exit != 0 {
		c.Log.Error("device not changed", "exit", out.Exit, "stderr", out.Stderr)
	}
	return err == nil && out.Exit == 0, err
}

func (d disk) fsType(ctx context.Context, _ *fn.Call, a diskArgs) (string, error) {
	return d.typeOf(ctx, a.Device)
}

func (d disk) typeOf(ctx context.Context, device string) (string, error) {
	if d.m.Which("lsblk") != "" {
		out, err := d.do(ctx, device, "lsblk", "-o", "fstype")
		if err != nil {
			return "", err
		}
		if lines := strings.Split(out.Stdout, "\n"); len(lines) > 1 && strings.TrimSpace(lines[1]) != "" {
			return strings.TrimSpace(lines[1]), nil
		}
	}
	out, err := d.do(ctx, device, "df", "-T")
	if err != nil {
		return "", err
	}
	if lines := strings.Split(out.Stdout, "\n"); len(lines) > 1 {
		if f := strings.Fields(lines[1]); len(f) > 1 {
			return f[1], nil
		}
	}
	return "", nil
}

func (d disk) fsTypeOfPath(ctx context.Context, c *fn.Call, a pathArgs) (string, error) {
	at, err := mountFuncs(d).fromPath(ctx, c, mountPathArgs(a))
	if err != nil {
		return "", err
	}
	var found fs.Mount
	for _, m := range fs.Mounts(d.m) {
		if m.Path == at {
			found = m // the last of several mounts at one path is visible
		}
	}
	if strings.HasPrefix(found.Device, "/") {
		return d.typeOf(ctx, found.Device)
	}
	return found.Type, nil
}

// attributes lists the properties of a device in the order in which blockdev
// is asked for them.
var attributes = []string{"getro", "getsz", "getss", "getpbsz", "getiomin", "getioopt", "getalignoff", "getmaxsect", "getsize", "getsize64", "getra",
	"getfra"}

type dumpArgs struct {
	Device string   `salt:"device" doc:"path of the device"`
	Args   []string `salt:"args" doc:"list of what to return; all if null" default:"null"`
}

func (d disk) dump(ctx context.Context, _ *fn.Call, a dumpArgs) (any, error) {
	var options []string
	for _, name := range attributes {
		options = append(options, "--"+name)
	}
	out, err := d.do(ctx, a.Device, "blockdev", options...)
	if err != nil || out.Exit != 0 {
		return false, err
	}
	found := value.NewDict(len(attributes))
	for i, line := range slices.DeleteFunc(strings.Split(out.Stdout, "\n"), func(l string) bool { return l == "" }) {
		if i < len(attributes) {
			found.Set(attributes[i], line)
		}
	}
	if len(a.Args) == 0 {
		return found, nil
	}
	some := value.NewDict(len(a.Args))
	for _, name := range a.Args {
		v, ok := found.Get(name)
		if !ok {
			return nil, fn.Invalidf("there is no attribute %q; there are %s", name, strings.Join(attributes, ", "))
		}
		some.Set(name, v)
	}
	return some, nil
}

type tuneArgs struct {
	Device string    `salt:"device" doc:"path of the device"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (d disk) tune(ctx context.Context, c *fn.Call, a tuneArgs) (any, error) {
	switches := map[string]string{"read-ahead": "ra", "filesystem-read-ahead": "fra", "read-only": "ro", "read-write": "rw"}
	var options, asked, bad []string
	for k, v := range a.Kwargs.Clean().All() {
		key, text := value.Str(k), value.Str(v)
		name, known := switches[key]
		number, err := strconv.ParseUint(text, 10, 32)
		switch flag := name == "ro" || name == "rw"; {
		case !known, flag && text != "True" && text != "true", !flag && err != nil:
			bad = append(bad, key+"="+text)
		case flag:
			options, asked = append(options, "--set"+name), append(asked, "getro")
		default:
			options, asked = append(options, "--set"+name, strconv.FormatUint(number, 10)), append(asked, "get"+name)
		}
	}
	if len(bad) > 0 {
		return nil, fn.Invalidf("Invalid keyword arguments: %s", strings.Join(bad, ", "))
	}
	out, err := d.do(ctx, a.Device, "blockdev", options...)
	if err != nil {
		return nil, err
	}
	if out.Exit != 0 {
		return nil, fn.Errorf("%s", out.Stderr)
	}
	return d.dump(ctx, c, dumpArgs{a.Device, asked})
}

func (d disk) wipe(ctx context.Context, c *fn.Call, a diskArgs) (bool, error) {
	out, err := d.do(ctx, a.Device, "wipefs", "-a")
	return d.ok(c, out, err)
}

// resize returns true or, on failure, null, as in Salt.
func (d disk) resize(ctx context.Context, c *fn.Call, a diskArgs) (any, error) {
	out, err := d.do(ctx, a.Device, "resize2fs")
	if ok, err := d.ok(c, out, err); err != nil || ok {
		return ok, err
	}
	return nil, nil
}

type formatArgs struct {
	Device   string `salt:"device" doc:"path of the device"`
	Type     string `salt:"fs_type" doc:"type of the file system" default:"ext4"`
	Inode    any    `salt:"inode_size" doc:"size of inodes, of ext and xfs" default:"null"`
	LazyInit any    `salt:"lazy_itable_init" doc:"1 to make the tables of inodes later, of ext" default:"null"`
	FAT      any    `salt:"fat" doc:"12, 16 or 32, of FAT" default:"null"`
	Force    bool   `salt:"force" doc:"do not mind what the device holds, of ext and xfs" default:"false"`
}

var fsTypeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9]*$`) })

func (d disk) format(ctx context.Context, c *fn.Call, a formatArgs) (bool, error) {
	for _, program := range []string{"sync", "mkfs"} {
		if d.m.Which(program) == "" {
			return false, &fn.ProgramError{Program: program}
		}
	}
	if !fsTypeName().MatchString(a.Type) {
		return false, fn.Invalidf("%q is no type of a file system", a.Type)
	}
	ext, xfs, args := strings.HasPrefix(a.Type, "ext"), a.Type == "xfs", []string{"-t", a.Type}
	if a.Inode != nil && ext {
		args = append(args, "-i", value.Str(a.Inode))
	}
	if a.Inode != nil && xfs {
		args = append(args, "-i", "size="+value.Str(a.Inode))
	}
	if a.LazyInit != nil && ext {
		args = append(args, "-E", "lazy_itable_init="+value.Str(a.LazyInit))
	}
	if bits := value.Str(a.FAT); a.FAT != nil && strings.HasSuffix(a.Type, "fat") && slices.Contains([]string{"12", "16", "32"}, bits) {
		args = append(args, "-F", bits)
	}
	if a.Force && ext {
		args = append(args, "-F")
	}
	if a.Force && xfs {
		args = append(args, "-f")
	}
	out, err := d.do(ctx, a.Device, "mkfs", args...)
	made, err := d.ok(c, out, err)
	if err != nil {
		return false, err
	}
	synced, err := d.m.Do(ctx, "sync")
	return made && err == nil && synced.Exit == 0, nil
}

type hdparmArgs struct {
	Disks any `salt:"disks" doc:"name of a disk, or a list of names"`
	Args  any `salt:"args" doc:"letters of hdparm's options" default:"aAbBcCdgHiJkMmNnQrRuW"`
}

var lettersOnly = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z]+$`) })

func (d disk) hdparms(ctx context.Context, _ *fn.Call, a hdparmArgs) (*value.Dict, error) {
	letters := value.Str(a.Args)
	if l, ok := a.Args.(*value.List); ok {
		letters = strings.Join(value.ListTexts(l), "")
	}
	if !lettersOnly().MatchString(letters) {
		return nil, fn.Invalidf("args are letters, not %s", value.Repr(a.Args))
	}
	return d.parameters(ctx, a.Disks, letters)
}

func (d disk) parameters(ctx context.Context, disks any, letters string) (*value.Dict, error) {
	if d.m.Which("hdparm") == "" {
		return nil, &fn.ProgramError{Program: "hdparm"}
	}
	l, ok := disks.(*value.List)
	if !ok {
		l = value.ListOf(disks)
	}
	all := value.NewDict(l.Len())
	for _, name := range value.ListTexts(l) {
		if !strings.HasPrefix(name, "/dev") {
			name = "/dev/" + name
		}
		out, err := d.do(ctx, name, "hdparm", "-"+letters)
		if err != nil {
			return nil, err
		}
		one := value.NewDict(16)
		for line := range strings.SplitSeq(out.Stdout, "\n") {
			if line = strings.TrimSpace(line); line != name+":" {
				parameter(one, line)
			}
		}
		all.Set(name, one)
	}
	return all, nil
}

var numberWithNote = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+) \(([^ ]*?)\)`) })

// parameter parses a line of hdparm: a name, and a number with a note, or
// values between slashes and commas.
func parameter(d *value.Dict, line string) {
	key, text, ok := strings.Cut(line, ":")
	if ok {
		key = strings.TrimSuffix(key, " is")
	} else if key, text, ok = strings.Cut(line, "="); !ok {
		return
	}
	key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(key)), " ", "_")
	text = strings.TrimSpace(text)
	if m := numberWithNote().FindStringSubmatch(text); m != nil {
		d.Set(key, value.ListOf(number(m[1]), m[2]))
		return
	}
	list, named := &value.List{}, value.NewDict(0)
	for _, v := range strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == ',' }) {
		v = strings.TrimSpace(v)
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			list.Append(n)
		} else if k, w, ok := strings.Cut(v, "="); ok {
			if w = strings.TrimSpace(w); w != "" {
				named.Set(strings.TrimSpace(k), w)
			}
		} else if v != "" {
			list.Append(v)
		}
	}
	if named.Len() > 0 {
		list.Append(named)
	}
	switch list.Len() {
	case 0:
	case 1:
		d.Set(key, list.Items[0])
	default:
		d.Set(key, list)
	}
}

type hpaArgs struct {
	Disks any `salt:"disks" doc:"name of a disk, or a list of names"`
	Size  any `salt:"size" doc:"number of sectors to hide, or a share of them such as 20%" default:"null"`
}

func (d disk) hpa(ctx context.Context, c *fn.Call, a hpaArgs) (any, error) {
	all, err := d.parameters(ctx, a.Disks, "N")
	if err != nil {
		return nil, err
	}
	found := value.NewDict(all.Len())
	for name, v := range all.All() {
		for _, sectors := range v.(*value.Dict).All() {
			l, ok := sectors.(*value.List)
			if !ok || l.Len() < 3 {
				continue
			}
			visible, ok1 := l.Items[0].(int64)
			total, ok2 := l.Items[1].(int64)
			switch {
			case !ok1 || !ok2:
			case visible == total || strings.Contains(value.Str(l.Items[2]), "disabled"):
				found.Set(name, value.DictOf("total", total))
			default:
				found.Set(name, value.DictOf("total", total, "visible", visible, "hidden", total-visible))
			}
			break
		}
	}
	if a.Size == nil {
		return found, nil
	}
	for name, v := range found.All() {
		total := v.(*value.Dict).Int("total")
		text := value.Str(a.Size)
		share, percent := strings.CutSuffix(text, "%")
		n, err := strconv.ParseInt(share, 10, 64)
		if err != nil || n < 0 {
			return nil, fn.Invalidf("size is a number of sectors or a share such as 20%%, not %s", value.Repr(a.Size))
		}
		size := total - n
		if percent {
			size = (100 - n) * total / 100
		}
		if size <= 0 {
			size = total
		}
		c.Log.Warn("job hides sectors of a disk (host protected area)", "disk", name, "sectors", size, "jid", c.JID)
		out, err := d.do(ctx, value.Str(name), "hdparm", "--yes-i-know-what-i-am-doing", "-Np"+strconv.FormatInt(size, 10))
		if err == nil && out.Exit != 0 {
			err = fn.Errorf("hdparm failed: %s", out.Message())
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

type smartArgs struct {
	Device     string `salt:"dev" doc:"name of the disk"`
	Attributes any    `salt:"attributes" doc:"list of numbers of attributes; all if null" default:"null"`
	Values     any    `salt:"values" doc:"list of columns; all if null" default:"null"`
}

func (d disk) smart(ctx context.Context, _ *fn.Call, a smartArgs) (*value.Dict, error) {
	device := a.Device
	if !strings.HasPrefix(device, "/dev/") {
		device = "/dev/" + device
	}
	out, err := d.do(ctx, device, "smartctl", "--attributes")
	if err != nil {
		return nil, err
	}
	if out.Exit != 0 {
		return nil, fn.Errorf("%s", out.Message())
	}
	_, table, _ := strings.Cut(out.Stdout, "ID#")
	heads, rows, _ := strings.Cut(table, "\n")
	columns := strings.Fields(strings.ToLower(heads))
	found := value.NewDict(32)
	for line := range strings.SplitSeq(rows, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			break
		}
		id, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			break
		}
		if wanted(a.Attributes, id) {
			found.Set(id, smartRow(columns, f[1:], a.Values))
		}
	}
	return found, nil
}

func wanted(list, v any) bool {
	l, ok := list.(*value.List)
	return !ok || slices.ContainsFunc(l.Items, func(it any) bool { return value.Equal(it, v) })
}

// smartRow splits a line into columns; the last column takes the rest.
func smartRow(columns, words []string, values any) *value.Dict {
	one := value.NewDict(len(columns))
	for i, name := range columns {
		if i >= len(words) || !wanted(values, name) {
			continue
		}
		if last := words[i:]; i == len(columns)-1 && len(last) > 1 {
			l := numbers(last)
			if slices.ContainsFunc(l.Items, func(it any) bool { _, ok := it.(int64); return !ok }) {
				one.Set(name, strings.Join(last, " "))
			} else {
				one.Set(name, l)
			}
			continue
		}
		if n, err := strconv.ParseInt(words[i], 10, 64); err == nil {
			one.Set(name, n)
		} else {
			one.Set(name, words[i])
		}
	}
	return one
}

type iostatArgs struct {
	Interval int `salt:"interval" doc:"seconds between reports" default:"1"`
	Count    int `salt:"count" doc:"number of reports" default:"5"`
	Disks    any `salt:"disks" doc:"name of a disk, or a list; all, and the processors, if null" default:"null"`
}

func (d disk) iostat(ctx context.Context, _ *fn.Call, a iostatArgs) (*value.Dict, error) {
	if d.m.Which("iostat") == "" {
		return nil, &fn.ProgramError{Program: "iostat"}
	}
	if a.Interval < 1 || a.Count < 1 || a.Interval*a.Count > 3600 {
		return nil, fn.Invalidf("interval and count are numbers from 1 on, with a product of at most 3600")
	}
	args := []string{"-x", strconv.Itoa(a.Interval), strconv.Itoa(a.Count)}
	if a.Disks != nil {
		l, ok := a.Disks.(*value.List)
		if !ok {
			l = value.ListOf(a.Disks)
		}
		args[0] = "-xd"
		for _, name := range value.ListTexts(l) {
			if name == "" || name[0] == '-' {
				return nil, fn.Invalidf("%q is no name of a disk", name)
			}
			args = append(args, name)
		}
	}
	out, err := run(ctx, d.m, "iostat", args...)
	return parseIostat(out), err
}

// parseIostat returns averages by disk. Those of the processors have the key
// "sys".
func parseIostat(text string) *value.Dict {
	sums := value.NewDict(8) // by name, then by column
	var columns []string
	counts, disks, sys := map[string]int{}, false, false
	add := func(name string, words []string) {
		d := sums.Dict(name)
		if d == nil {
			d = value.NewDict(len(words))
			sums.Set(name, d)
		}
		counts[name]++
		for i, w := range words {
			if v, err := strconv.ParseFloat(w, 64); err == nil && i < len(columns) {
				before, _ := d.At(columns[i]).(float64)
				d.Set(columns[i], before+v)
			}
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
			disks = false
		case f[0] == "avg-cpu:":
			columns, sys, disks = f[1:], true, false
		case f[0] == "Device:", f[0] == "Device":
			columns, disks = f[1:], true
		case sys:
			add("sys", f)
			sys = false
		case disks:
			add(f[0], f[1:])
		}
	}
	for name, v := range sums.All() {
		d := v.(*value.Dict)
		for key, sum := range d.All() {
			d.Set(key, math.Round(sum.(float64)/float64(counts[value.Str(name)])*100)/100)
		}
	}
	return sums
}
