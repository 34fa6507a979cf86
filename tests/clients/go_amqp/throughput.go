package main

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
)

// throughput sends `count` durable messages of `size` octets to `address` and receives and accepts as many at the same time ("way":
// "both"), or does one of the two ("in", "out"). `address` may be a list. `connections` (1 by default) send, as many others receive,
// and they divide the addresses and the messages between them; the counts must divide without a rest. Each sender has `window`
// messages unconfirmed at most, each receiver as much credit.
// It answers with the seconds from the first transfer to the last confirmation and the answered detach of the receivers.
func throughput(ctx context.Context, command object) (object, error) {
	connections := 1
	if command["connections"] != nil {
		connections = int(number(command["connections"]))
	}
	count, window := int(number(command["count"]))/connections, int(number(command["window"]))
	addresses := addressesOf(command["address"])
	way, _ := command["way"].(string)
	body := make([]byte, number(command["size"]))
	rand.Read(body)
	var parts []func() error
	left := make(map[string]*queueLeft)
	for i := range connections {
		address := addresses[i%len(addresses)]
		if way != "out" {
			session, done, err := connected(ctx, command)
			if err != nil {
				return nil, err
			}
			defer done()
			mode := amqp.SenderSettleModeUnsettled
			sender, err := session.NewSender(ctx, address, &amqp.SenderOptions{SettlementMode: mode.Ptr()})
			if err != nil {
				return nil, err
			}
			parts = append(parts, func() error { return sendAll(ctx, sender, body, count, window) })
		}
		if way != "in" {
			session, done, err := connected(ctx, command)
			if err != nil {
				return nil, err
			}
			defer done()
			receiver, err := session.NewReceiver(ctx, address, &amqp.ReceiverOptions{Credit: int32(window)})
			if err != nil {
				return nil, err
			}
			if left[address] == nil {
				left[address] = newQueueLeft(ctx)
			}
			left[address].messages.Add(int64(count))
			parts = append(parts, func() error { return receiveAll(ctx, receiver, left[address]) })
		}
	}
	ends := make(chan error, len(parts))
	began := time.Now()
	for _, part := range parts {
		go func() { ends <- part() }()
	}
	for range parts {
		if err := <-ends; err != nil {
			return nil, err
		}
	}
	return object{"seconds": time.Since(began).Seconds()}, nil
}

func connected(ctx context.Context, command object) (*amqp.Session, func() error, error) {
	connection, err := amqp.Dial(ctx, command["url"].(string), options(command))
	if err != nil {
		return nil, nil, err
	}
	session, err := connection.NewSession(ctx, nil)
	return session, connection.Close, err
}

func sendAll(ctx context.Context, sender *amqp.Sender, body []byte, count, window int) error {
	receipts := make(chan amqp.SendReceipt, window)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for receipt := range receipts {
			state, err := receipt.Wait(ctx)
			if _, accepted := state.(*amqp.StateAccepted); err == nil && !accepted {
				err = &amqp.Error{Condition: amqp.ErrCondIllegalState, Description: "a message was not accepted"}
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	message := &amqp.Message{Header: &amqp.MessageHeader{Durable: true, Priority: 4}, Data: [][]byte{body}}
	for range count {
		receipt, err := sender.SendWithReceipt(ctx, message, nil)
		if err != nil {
			return err
		}
		select {
		case receipts <- receipt:
		case err := <-failed:
			return err
		}
	}
	close(receipts)
	return <-failed
}

// queueLeft is what the receivers of one queue have still to take; `taken` ends with the last of it.
type queueLeft struct {
	messages atomic.Int64
	taken    context.Context
	end      context.CancelFunc
}

func newQueueLeft(ctx context.Context) *queueLeft {
	left := &queueLeft{}
	left.taken, left.end = context.WithCancel(ctx)
	return left
}

func receiveAll(ctx context.Context, receiver *amqp.Receiver, left *queueLeft) error {
	for left.messages.Load() > 0 {
		message, err := receiver.Receive(left.taken, nil)
		if err != nil && left.messages.Load() <= 0 {
			break // another receiver took the last one
		}
		if err != nil {
			return err
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
		if left.messages.Add(-1) == 0 {
			left.end()
		}
	}
	return receiver.Close(ctx)
}

func addressesOf(value any) []string {
	if one, ok := value.(string); ok {
		return []string{one}
	}
	var several []string
	for _, each := range value.([]any) {
		several = append(several, each.(string))
	}
	return several
}
