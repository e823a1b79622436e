package main

import (
	"maps"
	"strconv"
	"strings"
)

// Variables that tell a command of kind exec which GPU devices are its own.
const (
	variableGPUs = "ERRAND_GPUS"
	variableCUDA = "CUDA_VISIBLE_DEVICES" // what CUDA itself looks at
)

// withDevices adds the numbers of the attempt's devices to a command's environment, over whatever its task says. Both are empty for an
// attempt without devices: CUDA then finds none, and nobody computes on what another attempt has been given.
func withDevices(env map[string]string, gpus []int) map[string]string {
	var numbers []string
	for _, g := range gpus {
		numbers = append(numbers, strconv.Itoa(g))
	}
	list := strings.Join(numbers, ",")
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	env[variableGPUs], env[variableCUDA] = list, list
	return env
}
