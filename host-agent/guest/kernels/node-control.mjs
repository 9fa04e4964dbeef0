/**
 * The thread that speaks to the host on the control pair. It stays free while a cell keeps the main thread busy, and so
 * can break into it.
 */
import { writeSync } from 'node:fs';
import { Session } from 'node:inspector';
import { Socket } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

const MAX_REQUEST_BYTES = 16 * 1024 * 1024;
/** For the main thread to answer by itself, as it does where the cell waits for something. */
const ANSWER_PATIENCE_MS = 50;

const main = new Session();
main.connectToMainThread();
let running;
let interrupting = false;
const heldBack = [];
let asked = 0;
let onAnswer = () => {};
let received = Buffer.alloc(0);

const input = new Socket({ fd: workerData.input, readable: true, writable: false });
input.on('data', (bytes) => {
  received = received.length === 0 ? bytes : Buffer.concat([received, bytes]);
  while (received.length >= 4) {
    const length = received.readUInt32BE(0);
    if (length > MAX_REQUEST_BYTES) endProcess();
    if (received.length < 4 + length) return;
    const body = received.toString('utf8', 4, 4 + length);
    received = received.subarray(4 + length);
    take(JSON.parse(body));
  }
});
input.on('error', endProcess);
input.on('close', endProcess);

parentPort.on('message', (message) => {
  if (message.type === 'answer') {
    if (message.asked === asked) onAnswer();
    return;
  }
  if (message.type === 'result') sendResult(message);
  else if (message.type === 'tool_call') sendCall(message);
  else send(message);
});

function take(request) {
  if (request.type === 'interrupt' && request.id === running && !interrupting) void interrupt(request.id);
  if (request.type !== 'execute' && request.type !== 'tool_result') return;
  if (request.type === 'execute') running = request.id;
  // What breaks into the main thread may hit its next turn too: nothing but questions goes there meanwhile.
  if (interrupting) heldBack.push(request);
  else parentPort.postMessage(request);
}

async function interrupt(id) {
  interrupting = true;
  while (!(await ask(id))) await terminate();
  interrupting = false;
  for (const request of heldBack.splice(0)) parentPort.postMessage(request);
}

/** Whether the main thread is free to answer; where it is, it ends the cell. */
function ask(id) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ANSWER_PATIENCE_MS, false);
    onAnswer = () => {
      clearTimeout(timer);
      resolve(true);
    };
    asked += 1;
    parentPort.postMessage({ type: 'interrupt', id, asked });
  });
}

/** Ends the JavaScript that runs in the main thread, where nothing can catch it; answered when that has happened. */
function terminate() {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ANSWER_PATIENCE_MS);
    main.post('Runtime.terminateExecution', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function sendResult({ value, error, ...head }) {
  running = undefined;
  const texts = [];
  const lengthOf = (text) => texts[texts.push(Buffer.from(text, 'utf8')) - 1].length;
  const valueLength = value === null ? null : lengthOf(value);
  const errorHead =
    error === null
      ? null
      : { ...error, message: lengthOf(error.message), traceback: lengthOf(error.traceback) };
  send({ ...head, value: valueLength, error: errorHead }, texts);
}

function sendCall({ arguments: text, ...head }) {
  // Of a cell that was broken into, and has ended for the host, nothing is said any more.
  if (head.id !== running) return;
  const bytes = Buffer.from(text, 'utf8');
  send({ ...head, arguments: bytes.length }, [bytes]);
}

/** u32 length, u32 length of the head, the head as JSON, and the texts whose lengths in bytes it names. */
function send(head, texts = []) {
  const headBytes = Buffer.from(JSON.stringify(head), 'utf8');
  const lengths = Buffer.alloc(8);
  const message = Buffer.concat([lengths, headBytes, ...texts]);
  message.writeUInt32BE(message.length - 4, 0);
  message.writeUInt32BE(headBytes.length, 4);
  for (let at = 0; at < message.length; ) at += writeSync(workerData.output, message, at);
}

/** The end of a worker would not be the end of the process. */
function endProcess() {
  process.kill(process.pid, 'SIGKILL');
}
