package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// sampleSeconds is long enough for a worker to be killed in the middle of it.
const sampleSeconds = 30

// makeSample makes a clip with a picture that moves and a tone.
func makeSample(ctx context.Context, out string) (string, error) {
	path := filepath.Join(out, "sample clip.mp4")
	fmt.Printf("no MEDIA given: making a sample of %d s with ffmpeg\n", sampleSeconds)
	cmd := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-y",
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=1280x720:rate=30:duration=%d", sampleSeconds),
		"-f", "lavfi", "-i", fmt.Sprintf("sine=frequency=440:duration=%d", sampleSeconds),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", "-shortest", "-movflags", "+faststart", path)
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a sample: %w\n%s(is ffmpeg installed? make bootstrap installs it)", err, said)
	}
	return path, nil
}
