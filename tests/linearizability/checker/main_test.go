package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func appended(client int, call, end int64, esn uint64, payload string) Operation {
	return Operation{Client: client, Kind: "append", Call: call, Return: end, Position: [2]uint64{esn, 0}, Payload: payload}
}

func behind(operation Operation, esn uint64) Operation {
	operation.Expect = &[2]uint64{esn, 0}
	return operation
}

func read(client int, call, end int64, tail uint64, payloads ...string) Operation {
	sum := uint64(empty)
	for _, each := range payloads {
		sum = extended(sum, each)
	}
	return Operation{Client: client, Kind: "read", Call: call, Return: end, Tail: tail, Count: len(payloads), Digest: fmt.Sprintf("%016x", sum)}
}

func tail(client int, call, end int64, lsn uint64) Operation {
	return Operation{Client: client, Kind: "tail", Call: call, Return: end, Tail: lsn}
}

func TestHistories(t *testing.T) {
	for name, each := range map[string]struct {
		history []Operation
		want    porcupine.CheckResult
	}{
		"one after the other":                        {[]Operation{appended(1, 1, 2, 1, "a"), appended(2, 3, 4, 2, "b"), read(1, 5, 6, 2, "a", "b")}, porcupine.Ok},
		"at the same time, in either order":          {[]Operation{appended(1, 1, 9, 2, "a"), appended(2, 2, 8, 1, "b"), read(3, 10, 11, 2, "b", "a")}, porcupine.Ok},
		"a later append lies before":                 {[]Operation{appended(1, 1, 2, 2, "a"), appended(2, 3, 4, 1, "b")}, porcupine.Illegal},
		"an acknowledged record is not read":         {[]Operation{appended(1, 1, 2, 1, "a"), read(2, 3, 4, 1)}, porcupine.Illegal},
		"records are read in another order":          {[]Operation{appended(1, 1, 2, 1, "a"), appended(1, 3, 4, 2, "b"), read(2, 5, 6, 2, "b", "a")}, porcupine.Illegal},
		"a tail below what was acknowledged":         {[]Operation{appended(1, 1, 2, 5, "a"), tail(2, 3, 4, 4)}, porcupine.Illegal},
		"an append at or below a tail that was told": {[]Operation{tail(1, 1, 2, 7), appended(2, 3, 4, 7, "a")}, porcupine.Illegal},
		"nobody was told, and it is read":            {[]Operation{appended(1, 1, 0, 1, "a"), read(2, 5, 6, 1, "a"), appended(1, 7, 8, 2, "b")}, porcupine.Ok},
		"nobody was told, and it comes later":        {[]Operation{appended(1, 1, 0, 1, "a"), read(2, 5, 6, 0), read(2, 7, 8, 1, "a")}, porcupine.Ok},
		"it was read, and then it was not":           {[]Operation{appended(1, 1, 0, 1, "a"), read(2, 5, 6, 1, "a"), read(2, 7, 8, 1)}, porcupine.Illegal},
		"behind what it expected":                    {[]Operation{appended(1, 1, 2, 1, "a"), behind(appended(2, 1, 4, 2, "b"), 1)}, porcupine.Ok},
		"something between":                          {[]Operation{appended(1, 1, 2, 1, "a"), appended(3, 3, 4, 2, "c"), behind(appended(2, 1, 6, 3, "b"), 1)}, porcupine.Illegal},
	} {
		if got, _ := judge(each.history, time.Minute); got != each.want {
			t.Errorf("%s: %s, not %s", name, got, each.want)
		}
	}
}
