package main

import (
	"image/color"
	"os"
	"path/filepath"

	"github.com/HdrHistogram/hdrhistogram-go"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a picture of curves.
type chart struct {
	title, x, y string
	logX        bool // values on x are above 0
	curves      []curve
}

type curve struct {
	name   string // empty: not in the legend
	points plotter.XYs
	color  int  // a number in the palette
	dashed bool // what should be, rather than what was
}

// palette is the one of Okabe and Ito, which people who see fewer colours can tell apart too.
var palette = []color.Color{
	color.RGBA{0, 114, 178, 255},
	color.RGBA{213, 94, 0, 255},
	color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255},
	color.RGBA{230, 159, 0, 255},
	color.RGBA{86, 180, 233, 255},
}

const chartWidth, chartHeight = 18 * vg.Centimeter, 11 * vg.Centimeter

// writeSVG draws the chart into a file, if one is named.
func (c chart) writeSVG(file string) error {
	if file == "" {
		return nil
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.BackgroundColor = color.White
	if c.logX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	for _, one := range c.curves {
		line, err := plotter.NewLine(one.points)
		if err != nil {
			return err
		}
		line.Color, line.Width = palette[one.color%len(palette)], vg.Points(1.5)
		if one.dashed {
			line.Dashes, line.Width = []vg.Length{vg.Points(4), vg.Points(3)}, vg.Points(1)
		}
		p.Add(line)
		if one.name != "" {
			p.Legend.Add(one.name, line)
		}
	}
	canvas := vgsvg.New(chartWidth, chartHeight)
	p.Draw(draw.New(canvas))
	out, err := os.Create(filepath.Clean(file))
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		_ = out.Close() // it is damaged already
		return err
	}
	return out.Close()
}

// distribution is the part of values up to each, values in milliseconds of a histogram in microseconds.
func distribution(h *hdrhistogram.Histogram) plotter.XYs {
	var points plotter.XYs
	total, sum := float64(h.TotalCount()), 0.0
	for _, bar := range h.Distribution() {
		if bar.Count == 0 {
			continue
		}
		sum += float64(bar.Count)
		points = append(points, plotter.XY{X: float64(bar.To) / 1000, Y: 100 * sum / total})
	}
	return points
}
