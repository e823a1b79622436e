package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandhq/errand"
)

// The demo, on a short clip with a name that needs care: a worker dies, and every file is there in the end.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "errand")
	if out, err := exec.Command("go", "build", "-o", program, "../errand").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	media := filepath.Join(dir, "a b ü'.mp4")
	clip(t, media, "testsrc2=size=640x480:rate=25:duration=20", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
	c := cli{Media: media, Out: filepath.Join(dir, "out put"), Errand: program, Workers: 2}
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"480p.mp4", "360p.mp4", "240p.mp4", "thumbnail.jpg", "preview.gif"} {
		if info, err := os.Stat(filepath.Join(c.Out, "a b ü' "+name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}

	sound, text, cut := filepath.Join(dir, "sound.mp4"), filepath.Join(dir, "text.mp4"), filepath.Join(dir, "cut.mp4")
	clip(t, sound, "sine=duration=2")
	whole, err := os.ReadFile(media)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(text, []byte("hello"), 0o644), os.WriteFile(cut, whole[:len(whole)/2], 0o644)); err != nil {
		t.Fatal(err)
	}
	d, err := startDeployment(t.Context(), program, 2, dir, c.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	for file, want := range map[string]string{
		sound: "no picture", text: "Invalid data", cut: "not a video that can be played",
	} {
		u := &upload{deployment: d, media: file, out: c.Out}
		if err := u.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", filepath.Base(file), err, want)
		}
	}
}

func clip(t *testing.T, file, source string, args ...string) {
	t.Helper()
	all := append([]string{"-v", "error", "-f", "lavfi", "-i", source}, args...)
	if out, err := exec.Command("ffmpeg", append(all, file)...).CombinedOutput(); err != nil {
		t.Fatalf("ffmpeg (make bootstrap installs it): %v\n%s", err, out)
	}
}

func TestMedia(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.mp4")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{dir: "not a file", empty: "empty", filepath.Join(dir, "none"): "no such file"} {
		c := cli{Media: file, Out: dir, Errand: "none", Workers: 2}
		if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	for _, workers := range []int{-1, 1, 17} {
		if err := (&cli{Workers: workers}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "--workers") {
			t.Errorf("%d workers: %v", workers, err)
		}
	}
}

func TestPolicy(t *testing.T) {
	said := func(stream, duration string) []byte {
		return fmt.Appendf(nil, `{"stdout": %q}`, fmt.Sprintf(`{"streams": [%s], "format": {"duration": %q}}`, stream, duration))
	}
	const hd = `{"codec_name": "h264", "width": 1280, "height": 720}`
	if p, err := probed(said(hd, "12.5")); err != nil || p.height != 720 || p.seconds != 12.5 {
		t.Errorf("%+v, %v", p, err)
	}
	for name, c := range map[string]struct {
		result []byte
		want   string
	}{
		"no picture": {said("", "12"), "no picture"},
		"a picture":  {said(hd, "N/A"), "no length"},
		"too long":   {said(hd, "600.1"), "at most 600"},
		"too large":  {said(`{"width": 7680, "height": 4320}`, "1"), "at most 3840x2160"},
		"tall":       {said(`{"width": 2200, "height": 3840}`, "1"), "at most 3840x2160"},
		"no JSON":    {[]byte(`{"stdout": "x"}`), "ffprobe"},
		"no result":  {nil, "result"},
	} {
		if _, err := probed(c.result); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for height, want := range map[int]string{2160: "[1080 720 480]", 720: "[720 480 360]", 200: "[144]", 101: "[100]", 1: "[2]"} {
		if got := fmt.Sprint(heights(height)); got != want {
			t.Errorf("of %d: %s, want %s", height, got, want)
		}
	}
}

// A step must be a task that kind exec takes: what it makes keeps its ending, since ffmpeg goes by it.
func TestSteps(t *testing.T) {
	all := workSteps("/media/x y.mov", "/out", probe{height: 720, seconds: 9})
	if len(all) != 5 {
		t.Fatalf("%d steps", len(all))
	}
	for _, s := range append(all, checkSteps(all)...) {
		spec := s.spec()
		if spec.Kind != "exec" || !strings.Contains(string(spec.Payload), `"/in/media"`) {
			t.Errorf("%s: %s", s.what, spec.Payload)
		}
		if s.output != "" && !strings.Contains(string(spec.Payload), "/out/file"+filepath.Ext(s.output)) {
			t.Errorf("%s: %s", s.what, spec.Payload)
		}
	}
	s := &step{task: errand.Task{State: errand.Failed, Reason: "exit_status"}}
	if s.result() != "failed exit_status" {
		t.Errorf("%q", s.result())
	}
}
