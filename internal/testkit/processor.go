package testkit

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Processor is the processor time of this process and of all that it started, by name. It
// is empty where there is no /proc.
func Processor() map[string]time.Duration {
	type process struct {
		name   string
		parent int
		used   time.Duration
	}
	all := map[int]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid …; utime and stime are the 14th and 15th, in hundredths of a second.
		pid, rest, _ := strings.Cut(string(text), " (")
		end := strings.LastIndexByte(rest, ')')
		if end < 0 {
			continue
		}
		f := strings.Fields(rest[end+1:])
		if len(f) < 13 {
			continue
		}
		id, _ := strconv.Atoi(pid)
		parent, _ := strconv.Atoi(f[1])
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		all[id] = process{rest[:end], parent, time.Duration(user+system) * 10 * time.Millisecond}
	}
	out := map[string]time.Duration{}
	for id, p := range all {
		for at := id; at > 1; at = all[at].parent {
			if at == os.Getpid() {
				out[p.name] += p.used
				break
			}
		}
	}
	return out
}

// ProcessorSince tells what was used since before, for each of n.
func ProcessorSince(before map[string]time.Duration, n int) string {
	now := Processor()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if d := (now[name] - before[name]) / time.Duration(n); d >= time.Microsecond {
			out = append(out, fmt.Sprintf("%s %s", name, d.Round(time.Microsecond)))
		}
	}
	return strings.Join(out, ", ")
}
