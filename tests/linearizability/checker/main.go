// Judges histories of one log with Porcupine: is there an order of the operations, within the times in which they ran, in which a single copy of the log
// would have answered the same?
//
// usage: checker FILE...   each a JSON array of operations; prints a line a file. Exit status 1: one is not linearizable; 3: one could not be judged in time.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Position of a record: LSN and batch offset.
type Position struct{ Lsn, Offset uint64 }

func (one Position) before(other Position) bool {
	return one.Lsn < other.Lsn || one.Lsn == other.Lsn && one.Offset < other.Offset
}

// Operation as it stands in a history.
type Operation struct {
	Client   int        `json:"client"`
	Kind     string     `json:"kind"` // append, tail, read
	Call     int64      `json:"call"`
	Return   int64      `json:"return"` // 0: nobody was told; it took effect at some time after the call
	Payload  string     `json:"payload"`
	Position [2]uint64  `json:"position"` // append: where it is
	Expect   *[2]uint64 `json:"expect"`   // append: of the record before it
	Tail     uint64     `json:"tail"`     // tail, read: the last LSN
	Count    int        `json:"count"`    // read: records up to the tail
	Digest   string     `json:"digest"`   // read: of their payloads
}

// log as a single copy would be. Only its end and a digest of its records are kept.
type log struct {
	last  Position
	floor uint64 // somebody was told that the log ended here: what follows has a greater LSN
	count int
	sum   uint64
}

const empty = 14695981039346656037

func extended(sum uint64, payload string) uint64 {
	for _, each := range []byte(payload + "\n") {
		sum = (sum ^ uint64(each)) * 1099511628211
	}
	return sum
}

func step(state, input, _ any) (bool, any) {
	now, operation := state.(log), input.(Operation)
	switch operation.Kind {
	case "append":
		place := Position{operation.Position[0], operation.Position[1]}
		if !now.last.before(place) || place.Lsn <= now.floor {
			return false, now
		}
		if expect := operation.Expect; expect != nil && now.last != (Position{expect[0], expect[1]}) {
			return false, now
		}
		now.last, now.count, now.sum = place, now.count+1, extended(now.sum, operation.Payload)
		return true, now
	case "read":
		if now.count != operation.Count || fmt.Sprintf("%016x", now.sum) != operation.Digest {
			return false, now
		}
		fallthrough
	case "tail":
		if now.last.Lsn > operation.Tail {
			return false, now
		}
		now.floor = max(now.floor, operation.Tail)
		return true, now
	}
	panic("no such operation: " + operation.Kind)
}

var model = porcupine.Model{
	Init:  func() any { return log{sum: empty} },
	Step:  step,
	Equal: func(one, other any) bool { return one == other },
}

// judge says whether a history is linearizable, and how many of its operations can be put into an order at most.
func judge(history []Operation, timeout time.Duration) (porcupine.CheckResult, int) {
	operations := make([]porcupine.Operation, 0, len(history))
	strangers := 1 << 20
	for _, each := range history {
		client, until := each.Client, each.Return
		if until == 0 { // its client goes on meanwhile
			strangers++
			client, until = strangers, math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{ClientId: client, Input: each, Call: each.Call, Output: nil, Return: until})
	}
	result, info := porcupine.CheckOperationsVerbose(model, operations, timeout)
	longest := 0
	for _, partial := range info.PartialLinearizations() {
		for _, order := range partial {
			longest = max(longest, len(order))
		}
	}
	return result, longest
}

func main() {
	status := 0
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		var history []Operation
		if err := json.Unmarshal(text, &history); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
		result, longest := judge(history, 2*time.Minute)
		fmt.Printf("%s %s: %d operations, %d of them in one order\n", result, path, len(history), longest)
		if result == porcupine.Illegal {
			status = 1
		} else if result == porcupine.Unknown && status == 0 {
			status = 3
		}
	}
	os.Exit(status)
}
