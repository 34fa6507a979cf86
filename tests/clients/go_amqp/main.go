// go-amqp as a client that takes orders: one JSON command a line on stdin, one JSON answer a line on stdout. See ../driving.py.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

const patience = 20 * time.Second

type receiver struct {
	*amqp.Receiver
	issued  int64 // credit not used up
	arrived []*amqp.Message
	held    []*amqp.Message
}

type client struct {
	connection *amqp.Conn
	sessions   map[int64]*amqp.Session
	senders    map[string]*amqp.Sender
	receivers  map[string]*receiver
}

func (c *client) open(ctx context.Context, command object) (object, error) {
	address := command["url"].(string)
	connection, err := amqp.Dial(ctx, address, options(command))
	if err != nil {
		return nil, err
	}
	*c = client{connection, map[int64]*amqp.Session{}, map[string]*amqp.Sender{}, map[string]*receiver{}}
	return object{"properties": connection.Properties()}, nil
}

func options(command object) *amqp.ConnOptions {
	chosen := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}
	if user, ok := command["user"].(string); ok {
		chosen.SASLType = amqp.SASLTypePlain(user, command["password"].(string))
	}
	if container, ok := command["container"].(string); ok {
		chosen.ContainerID = container
	}
	if idle, ok := command["idle"]; ok {
		chosen.IdleTimeout = time.Duration(number(idle)) * time.Second
	}
	switch command["mechanism"] {
	case "none":
		chosen.SASLType = nil
	case "EXTERNAL":
		chosen.SASLType = amqp.SASLTypeExternal("")
	}
	if file, ok := command["ca"].(string); ok {
		pem, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		where, _ := url.Parse(command["url"].(string))
		chosen.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: where.Hostname()}
		chosen.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
		if cert, ok := command["cert"].(string); ok {
			pair, err := tls.LoadX509KeyPair(cert, command["key"].(string))
			if err != nil {
				panic(err)
			}
			chosen.TLSConfig.Certificates = []tls.Certificate{pair}
		}
	}
	return chosen
}

func integer(command object, name string, otherwise int64) int64 {
	if value, ok := command[name]; ok {
		return number(value)
	}
	return otherwise
}

func (c *client) session(ctx context.Context, command object) (*amqp.Session, int64, error) {
	index := integer(command, "session", 0)
	if c.sessions[index] == nil {
		made, err := c.connection.NewSession(ctx, nil)
		if err != nil {
			return nil, index, err
		}
		c.sessions[index] = made
	}
	return c.sessions[index], index, nil
}

func (c *client) sender(ctx context.Context, command object) (*amqp.Sender, error) {
	session, index, err := c.session(ctx, command)
	if err != nil {
		return nil, err
	}
	to, _ := command["to"].(string)
	settled, _ := command["settled"].(bool)
	name := fmt.Sprint(index, settled, to)
	if c.senders[name] == nil {
		mode := amqp.SenderSettleModeUnsettled
		if settled {
			mode = amqp.SenderSettleModeSettled
		}
		made, err := session.NewSender(ctx, to, &amqp.SenderOptions{SettlementMode: mode.Ptr()})
		if err != nil {
			return nil, err
		}
		c.senders[name] = made
	}
	return c.senders[name], nil
}

func (c *client) send(ctx context.Context, command object) (object, error) {
	sender, err := c.sender(ctx, command)
	if err != nil {
		return nil, err
	}
	settled, _ := command["settled"].(bool)
	outcomes := []object{}
	receipts := []amqp.SendReceipt{}
	for _, given := range command["messages"].([]any) {
		message := messageOf(given.(object))
		if settled {
			if err := sender.Send(ctx, message, nil); err != nil {
				return nil, err
			}
			outcomes = append(outcomes, object{"outcome": "none"})
			continue
		}
		receipt, err := sender.SendWithReceipt(ctx, message, nil)
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, receipt)
	}
	for _, receipt := range receipts {
		state, err := receipt.Wait(ctx)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, outcomeOf(state))
	}
	return object{"outcomes": outcomes}, nil
}

func outcomeOf(state amqp.DeliveryState) object {
	switch said := state.(type) {
	case *amqp.StateAccepted:
		return object{"outcome": "accepted"}
	case *amqp.StateReleased:
		return object{"outcome": "released"}
	case *amqp.StateModified:
		return object{"outcome": "modified"}
	case *amqp.StateRejected:
		if said.Error != nil {
			return object{"outcome": "rejected", "condition": said.Error.Condition, "description": said.Error.Description}
		}
		return object{"outcome": "rejected"}
	}
	return object{"outcome": "none"}
}

func (c *client) receiver(ctx context.Context, command object) (*receiver, error) {
	session, index, err := c.session(ctx, command)
	if err != nil {
		return nil, err
	}
	browse, _ := command["browse"].(bool)
	second, _ := command["second"].(bool)
	name := fmt.Sprint(index, browse, second, command["from"], command["selector"], command["subscription"])
	if c.receivers[name] == nil {
		chosen := &amqp.ReceiverOptions{Credit: -1}
		if browse {
			chosen.SourceDistributionMode = amqp.SourceDistributionModeCopy
		}
		if second {
			chosen.SettlementMode = amqp.ReceiverSettleModeSecond.Ptr() // an outcome returns when the broker has settled
		}
		if selector, ok := command["selector"].(string); ok {
			chosen.Filters = []amqp.LinkFilter{amqp.NewSelectorFilter(selector)}
		}
		if subscription, ok := command["subscription"].(string); ok {
			chosen.Name = subscription
			chosen.SourceDurability, chosen.SourceExpiryPolicy = amqp.DurabilityUnsettledState, amqp.ExpiryPolicyNever
		}
		made, err := session.NewReceiver(ctx, command["from"].(string), chosen)
		if err != nil {
			return nil, err
		}
		c.receivers[name] = &receiver{Receiver: made}
	}
	return c.receivers[name], nil
}

func (c *client) dynamic(ctx context.Context, command object) (object, error) {
	session, _, err := c.session(ctx, command)
	if err != nil {
		return nil, err
	}
	made, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{Credit: -1, DynamicAddress: true})
	if err != nil {
		return nil, err
	}
	c.receivers[fmt.Sprint(int64(0), false, false, any(made.Address()), any(nil), any(nil))] = &receiver{Receiver: made}
	return object{"address": made.Address()}, nil
}

func (c *client) receive(ctx context.Context, command object) (object, error) {
	from, err := c.receiver(ctx, command)
	if err != nil {
		return nil, err
	}
	count := int(integer(command, "count", 1))
	credit := integer(command, "credit", int64(count))
	if missing := credit - from.issued - int64(len(from.arrived)); missing > 0 {
		if err := from.IssueCredit(uint32(missing)); err != nil {
			return nil, err
		}
		from.issued += missing
	}
	for len(from.arrived) < count {
		message, err := from.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		from.issued--
		from.arrived = append(from.arrived, message)
	}
	return from.take(ctx, count, command["outcome"])
}

func (c *client) drain(ctx context.Context, command object) (object, error) {
	from, err := c.receiver(ctx, command)
	if err != nil {
		return nil, err
	}
	if err := from.IssueCredit(uint32(integer(command, "credit", 1))); err != nil {
		return nil, err
	}
	// A drain takes the place of credit that was issued but has not left yet: a round trip lets it leave.
	if passing, err := c.connection.NewSession(ctx, nil); err != nil {
		return nil, err
	} else if err := passing.Close(ctx); err != nil {
		return nil, err
	}
	if err := from.DrainCredit(ctx, nil); err != nil {
		return nil, err
	}
	from.issued = 0
	for message := from.Prefetched(); message != nil; message = from.Prefetched() {
		from.arrived = append(from.arrived, message)
	}
	return from.take(ctx, len(from.arrived), command["outcome"])
}

func (r *receiver) take(ctx context.Context, count int, outcome any) (object, error) {
	messages := []object{}
	for _, message := range r.arrived[:count] {
		messages = append(messages, shown(message))
		if outcome == "hold" {
			r.held = append(r.held, message)
		} else if err := r.settle(ctx, message, outcome); err != nil {
			return nil, err
		}
	}
	r.arrived = r.arrived[count:]
	return object{"messages": messages}, nil
}

func (r *receiver) settle(ctx context.Context, message *amqp.Message, outcome any) error {
	switch said := outcome.(type) {
	case nil:
		return r.AcceptMessage(ctx, message)
	case string:
		switch said {
		case "reject":
			return r.RejectMessage(ctx, message, nil)
		case "release":
			return r.ReleaseMessage(ctx, message)
		}
		return r.AcceptMessage(ctx, message)
	case object:
		if reason, ok := said["reject"].(object); ok {
			condition := amqp.ErrCond(reason["condition"].(string))
			return r.RejectMessage(ctx, message, &amqp.Error{Condition: condition, Description: reason["description"].(string)})
		}
		modify := said["modify"].(object)
		failed, _ := modify["failed"].(bool)
		undeliverable, _ := modify["undeliverable"].(bool)
		return r.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{
			DeliveryFailed: failed, UndeliverableHere: undeliverable, Annotations: annotationsOf(modify["annotations"]),
		})
	}
	return fmt.Errorf("%v is no outcome", outcome)
}

func (c *client) settle(ctx context.Context, command object) (object, error) {
	from, err := c.receiver(ctx, command)
	if err != nil {
		return nil, err
	}
	for _, message := range from.held {
		if err := from.settle(ctx, message, command["outcome"]); err != nil {
			return nil, err
		}
	}
	from.held = nil
	return object{}, nil
}

func (c *client) detach(ctx context.Context, command object) (object, error) {
	for name, made := range c.senders {
		if to, ok := command["to"]; ok && made.Address() == to {
			delete(c.senders, name)
			return object{}, made.Close(ctx)
		}
	}
	for name, made := range c.receivers {
		if from, ok := command["from"]; ok && made.Address() == from {
			delete(c.receivers, name)
			return object{}, made.Close(ctx)
		}
	}
	return object{}, nil
}

func (c *client) close(context.Context, object) (object, error) {
	return object{}, c.connection.Close()
}

func explained(err error) object {
	level := "client"
	var remote *amqp.Error
	var link *amqp.LinkError
	var session *amqp.SessionError
	var connection *amqp.ConnError
	switch {
	case errors.As(err, &link):
		level, remote = "link", link.RemoteErr
	case errors.As(err, &session):
		level, remote = "session", session.RemoteErr
	case errors.As(err, &connection):
		level, remote = "connection", connection.RemoteErr
	case errors.As(err, &remote):
		level = "link" // a refused attach is given back as the bare error
	}
	if remote == nil {
		return object{"level": level, "condition": nil, "description": err.Error()}
	}
	return object{"level": level, "condition": remote.Condition, "description": remote.Description}
}

func (c *client) do(command object) (answer object) {
	defer func() {
		if failure := recover(); failure != nil {
			answer = object{"error": object{"level": "client", "condition": nil, "description": fmt.Sprint(failure)}}
		}
	}()
	limit := patience
	if wait, ok := command["wait"]; ok {
		limit = time.Duration(number(wait)) * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	known := map[string]func(context.Context, object) (object, error){
		"open": c.open, "send": c.send, "receive": c.receive, "dynamic": c.dynamic, "drain": c.drain, "settle": c.settle, "detach": c.detach,
		"close": c.close, "throughput": throughput,
	}
	answer, err := known[command["do"].(string)](ctx, command)
	if err != nil {
		return object{"error": explained(err)}
	}
	return answer
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	var this client
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		command := object{}
		if err := decoder.Decode(&command); err != nil {
			panic(err)
		}
		if err := answers.Encode(this.do(command)); err != nil {
			return
		}
	}
}
