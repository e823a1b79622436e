package placement

// Resources are amounts: what a worker has, or what an attempt takes of it.
type Resources struct {
	CPUMilli  int64 `json:"cpu_milli,omitempty"` // thousandths of a processor
	MemoryMiB int64 `json:"memory_mib,omitempty"`
	Slots     int64 `json:"slots,omitempty"`     // over all kinds; of a worker, 0 is no bound but those of its kinds
	GPUs      int64 `json:"gpus,omitempty"`      // whole devices, at most DevicesMax
	GPUMilli  int64 `json:"gpu_milli,omitempty"` // a share of one device, in thousandths; never beside GPUs, and no worker has such
}

// Bounds of what can be told apart.
const (
	DevicesMax  = 64   // of a worker
	DeviceMilli = 1000 // shares of a device
)

// Operator compares a worker's label with a selector's values.
type Operator uint8

// The operators. A label that is missing satisfies NotIn only.
const (
	In      Operator = iota + 1 // it is one of the values
	NotIn                       // it is none of them
	Exists                      // there is one
	Greater                     // it is a number above the only value
	Less                        // it is a number below the only value
)

// Selector is a condition on a label.
type Selector struct {
	Key      string   `json:"key"`
	Operator Operator `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// Preference makes workers more likely for which a selector holds.
type Preference struct {
	Selector
	Weight int `json:"weight"` // 1 to 100
}

// Shape is what an attempt needs of a worker beside its kind: attempts of one shape find room at the same places. It is not changed once
// it is used; a pool takes two shapes for the same only if they are one value.
type Shape struct {
	Resources
	Selectors   []Selector   `json:"selectors,omitempty"`   // all must hold
	Preferences []Preference `json:"preferences,omitempty"` // wished
	Near        string       `json:"near,omitempty"`        // a zone that is wished more than any preference; empty for none
}
