package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/errandhq/errand"
)

// step is one task of an upload.
type step struct {
	what    string
	command []string
	input   string // the file that it reads, seen as /in/media
	output  string // the file that it makes, if any, left as /out/file with the same ending
	task    errand.Task
}

// spec is the task as it is submitted.
func (s *step) spec() errand.Spec {
	payload := map[string]any{
		"command": s.command,
		"inputs":  []map[string]string{{"from": s.input, "to": "/in/media"}},
		"limits":  map[string]any{"memory_bytes": 2 << 30, "output_bytes": 4 << 30, "cpu_seconds": 1200},
	}
	if s.output != "" {
		payload["outputs"] = []map[string]string{{"from": "/out/file" + filepath.Ext(s.output), "to": s.output}}
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		panic(err) // texts and numbers
	}
	return errand.Spec{
		Kind: "exec", Payload: raw, ContentType: "application/json", Labels: map[string]string{"demo": "video"},
		AttemptTimeout: 15 * time.Minute,
		// A command that says no to its input would say so again; a worker that dies is another matter.
		Retry: errand.Retry{Initial: 500 * time.Millisecond, NonRetryable: []string{"exit_status", "no_output", "signal"}},
	}
}

// Policy: what is taken.
const (
	secondsMax = 10 * 60
	heightMax  = 2160
	widthMax   = 3840
)

// probe is what ffprobe says of a video, as far as the policy asks.
type probe struct {
	width, height int
	seconds       float64
	video         string // codec
}

// validateStep reads the container and then decodes every frame: a file that is cut short is found here, not by a viewer.
func validateStep(media string) *step {
	const script = `ffprobe -v error -select_streams v:0 -show_entries stream=codec_name,width,height:format=duration -of json /in/media &&
ffmpeg -v error -xerror -nostdin -i /in/media -map 0:v:0? -map 0:a? -f null -`
	return &step{what: "validate", command: []string{"sh", "-c", script}, input: media}
}

// probed reads the result of validateStep, and refuses what the policy does not take.
func probed(result []byte) (probe, error) {
	var exec struct {
		Stdout string `json:"stdout"`
	}
	var said struct {
		Streams []struct {
			Codec  string `json:"codec_name"`
			Width  int    `json:"width"`
			Height int    `json:"height"`
		} `json:"streams"`
		Format struct {
			Duration string `json:"duration"`
		} `json:"format"`
	}
	if err := json.Unmarshal(result, &exec); err != nil {
		return probe{}, fmt.Errorf("the result of kind exec: %w", err)
	}
	if err := json.Unmarshal([]byte(exec.Stdout), &said); err != nil {
		return probe{}, fmt.Errorf("what ffprobe says: %w", err)
	}
	if len(said.Streams) == 0 {
		return probe{}, fmt.Errorf("policy: it has no picture")
	}
	v := said.Streams[0]
	p := probe{width: v.Width, height: v.Height, video: v.Codec}
	p.seconds, _ = strconv.ParseFloat(said.Format.Duration, 64) // N/A is 0
	switch {
	case p.seconds <= 0:
		return p, fmt.Errorf("policy: it has no length: a picture, or a stream that is cut off")
	case p.seconds > secondsMax:
		return p, fmt.Errorf("policy: it is %.0f s long; at most %d are taken", p.seconds, secondsMax)
	case max(p.width, p.height) > widthMax || min(p.width, p.height) > heightMax:
		return p, fmt.Errorf("policy: it has %dx%d pixels; at most %dx%d are taken", p.width, p.height, widthMax, heightMax)
	}
	return p, nil
}

// heights are the resolutions that are made, the largest first: up to three, none larger than the original.
func heights(original int) []int {
	const most = 3
	var all []int
	for _, h := range []int{1080, 720, 480, 360, 240, 144} {
		if h <= original && len(all) < most {
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		all = []int{max(original/2*2, 2)}
	}
	return all
}

// workSteps make everything from a video that the policy takes.
func workSteps(media, out string, p probe) []*step {
	name := strings.TrimSuffix(filepath.Base(media), filepath.Ext(media))
	file := func(suffix string) string { return filepath.Join(out, name+suffix) }
	at := fmt.Sprintf("%.2f", p.seconds/3)
	var all []*step
	for _, h := range heights(p.height) {
		all = append(all, &step{
			what: fmt.Sprintf("encode %dp", h), input: media, output: file(fmt.Sprintf(" %dp.mp4", h)),
			command: []string{
				"ffmpeg", "-v", "error", "-nostdin", "-threads", "1", "-i", "/in/media", "-map", "0:v:0", "-map", "0:a:0?",
				"-vf", fmt.Sprintf("scale=-2:%d", h), "-c:v", "libx264", "-preset", "medium", "-threads", "1", "-pix_fmt", "yuv420p",
				"-c:a", "aac", "-movflags", "+faststart", "/out/file.mp4",
			},
		})
	}
	return append(all,
		&step{
			what: "thumbnail", input: media, output: file(" thumbnail.jpg"),
			command: []string{
				"ffmpeg", "-v", "error", "-nostdin", "-ss", at, "-i", "/in/media", "-frames:v", "1", "-vf", "scale=320:-2", "/out/file.jpg",
			},
		},
		&step{
			what: "preview", input: media, output: file(" preview.gif"),
			command: []string{
				"ffmpeg", "-v", "error", "-nostdin", "-ss", at, "-t", "3", "-i", "/in/media", "-an", "-vf", "fps=8,scale=240:-2", "/out/file.gif",
			},
		})
}

// checkSteps play what was made.
func checkSteps(made []*step) []*step {
	var all []*step
	for _, s := range made {
		all = append(all, &step{
			what: "play " + strings.TrimPrefix(s.what, "encode "), input: s.output,
			command: []string{"ffmpeg", "-v", "error", "-xerror", "-nostdin", "-i", "/in/media", "-f", "null", "-"},
		})
	}
	return all
}
