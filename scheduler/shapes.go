package scheduler

import "github.com/errandhq/errand/placement"

// shapesMax bounds the shapes that are remembered. Beyond it all are forgotten, which costs time only.
const shapesMax = 4096

// shapes has one shape stand for all that are alike: each row that is read brings its own, and the pool knows them by their addresses.
type shapes map[Class]*placement.Shape

// one is the shape that stands for those of a class.
func (s shapes) one(class Class, shape *placement.Shape) *placement.Shape {
	if shape == nil {
		return nil
	}
	if known := s[class]; known != nil {
		return known
	}
	if len(s) >= shapesMax {
		clear(s)
	}
	s[class] = shape
	return shape
}
