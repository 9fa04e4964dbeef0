/**
 * The JavaScript kernel of a sandbox: runs cells one after another in one global scope. Everything in this process can
 * be reached by the cells, so nothing here is a boundary; it is only kept out of their way.
 */
import { Console } from 'node:console';
import { writeSync } from 'node:fs';
import Module, { createRequire } from 'node:module';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describeError, ExitRequest, shorten, valueText } from './node-describe.mjs';
import { Evaluator } from './node-evaluator.mjs';
import { cryptoRenewal, randomNumbers } from './node-random.mjs';
import { IMPORT_FUNCTION } from './node-source.mjs';
import { StandardStreams } from './node-streams.mjs';
import { Calls, ToolError, toolsOf } from './node-tools.mjs';

const MAX_LATE_FAILURES = 10;
const nextTurn = setImmediate;

const numbers = randomNumbers();
Math.random = numbers.random;
const renewCrypto = cryptoRenewal();

/** Where the host's command line has put the control pair: among the numbers that Node keeps from its children. */
const control = { input: 10, output: 11 };
const streams = new StandardStreams();
const worker = new Worker(new URL('./node-control.mjs', import.meta.url), { workerData: control, env: {} });

/** The cell that runs. */
let cell;
let cells = 0;
/** Failures of what earlier cells left running, told to the next cell. */
const lateFailures = [];

arm();
setUpGlobals();
let evaluator = new Evaluator();
worker.on('message', (message) => {
  if (message.type === 'execute') begin(message);
  else if (message.type === 'tool_result') answer(message);
  else interrupt(message);
});
// Without the thread that speaks to the host there is no kernel.
for (const event of ['error', 'exit']) worker.on(event, () => process.kill(process.pid, 'SIGKILL'));
worker.postMessage({ type: 'ready', version: process.versions.node });

function setUpGlobals() {
  const hidden = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  // The console of Node hands what it prints to the inspector too, which keeps it.
  hidden(
    'console',
    new Console({ stdout: streams.forConsole('stdout'), stderr: streams.forConsole('stderr') }),
  );
  hidden('require', createRequire(join(process.cwd(), 'cell.cjs')));
  hidden(IMPORT_FUNCTION, importFunction());
  process.exit = (code = process.exitCode ?? 0) => {
    throw new ExitRequest(Number(code) & 0xff);
  };
}

/** `import()` is bound to the file it stands in: this one stands in the working directory. */
function importFunction() {
  const file = join(process.cwd(), 'cell.cjs');
  const module = new Module(file);
  module.filename = file;
  module.paths = Module._nodeModulePaths(process.cwd());
  module._compile(
    'module.exports = (name, options) => options === undefined ? import(name) : import(name, options)',
    file,
  );
  const load = module.exports;
  load.named = async (specifier, names) => {
    const namespace = await load(specifier);
    const missing = names.find((name) => !(name in namespace));
    if (missing === undefined) return namespace;
    throw new SyntaxError(`The module '${specifier}' does not provide an export named '${missing}'`);
  };
  return load;
}

function begin({ id, code, stdin, ...program }) {
  cells += 1;
  cell = { id, name: `cell-${cells}`, cpuBefore: process.cpuUsage(), uncaught: undefined, calls: undefined };
  const own = cell;
  if (program.tools !== undefined) beginProgram(own, program);
  arm();
  streams.prepare(stdin);
  if (stdin) worker.postMessage({ type: 'stdin_ready', id });
  for (const text of lateFailures.splice(0)) report(`Uncaught after an earlier cell: ${text}`);
  evaluator.evaluate(code, own.name, {
    value: (value) => ended(own, () => succeeded(value)),
    error: (error, place) => ended(own, () => failed(error, own, place)),
    brokenInto: () => ended(own, () => ({ status: 'interrupted' })),
  });
}

/** What the cell finds as `tools` and `ToolError`; they stay, and call for the program that runs then. */
function beginProgram(own, { tools, arguments: given = {} }) {
  own.calls = new Calls(own.id, (message) => worker.postMessage(message));
  Object.assign(globalThis, { tools: toolsOf(tools, given, () => cell?.calls), ToolError });
}

function answer(message) {
  if (cell?.id === message.id) cell.calls?.take(message);
}

/** One turn later, when rejections that nobody handles have been told. */
function ended(own, outcomeOf) {
  nextTurn(() => {
    if (own !== cell) return;
    let outcome;
    try {
      outcome = outcomeOf();
    } catch (error) {
      outcome = failed(error, own);
    }
    if (own.uncaught !== undefined && outcome.status === 'ok') outcome = failed(own.uncaught.error, own);
    else if (own.uncaught !== undefined) report(`Uncaught ${describeError(own.uncaught.error).traceback}`);
    end(outcome);
  });
}

function succeeded(value) {
  if (value === undefined) return { status: 'ok' };
  const { text, characters } = valueText(value);
  return { status: 'ok', value: text, value_characters: characters };
}

function failed(error, own, place) {
  if (!(error instanceof ExitRequest))
    return { status: 'error', error: describeError(error, own.name, place) };
  if (error.code === 0) return { status: 'ok', exit_code: 0 };
  const described = { name: 'ProcessExit', message: String(error.code), traceback: '' };
  return { status: 'error', exit_code: error.code, error: described };
}

function end(outcome) {
  const { id, cpuBefore } = cell;
  cell.calls?.close();
  cell = undefined;
  process.exitCode = undefined;
  const interrupted = { name: 'Interrupted', message: 'the cell was interrupted', traceback: '' };
  const { user, system } = process.cpuUsage(cpuBefore);
  worker.postMessage({
    type: 'result',
    id,
    value: null,
    value_characters: null,
    results: [],
    error: outcome.status === 'interrupted' ? interrupted : null,
    exit_code: null,
    cpu_ms: Math.round((user + system) / 1000),
    ...outcome,
  });
}

/** Comes here only once the main thread is free: the cell waits for something, or was broken into. */
function interrupt({ id, asked }) {
  worker.postMessage({ type: 'answer', asked });
  if (cell?.id !== id) return;
  // What the cell still waits for is nobody's any more.
  evaluator.abandon();
  evaluator = new Evaluator();
  end({ status: 'interrupted' });
}

/** Again before each cell: a cell may have taken them off. */
function arm() {
  for (const [event, listener] of [
    ['SIGINT', ignore],
    ['SIGURG', becomeCopy],
    ['uncaughtException', onUncaught],
    ['unhandledRejection', onUncaught],
  ])
    if (!process.listeners(event).includes(listener)) process.on(event, listener);
}

/** This process is a copy now: what it draws from here on is its own. */
function becomeCopy() {
  numbers.renew();
  renewCrypto();
}

/** The signal is for the programs of the cell; the cell itself is interrupted over the control pair. */
function ignore() {}

/** What would end a program of its own ends the cell that runs, also where it waits for something else. */
function onUncaught(error) {
  if (cell === undefined) {
    if (!(error instanceof ExitRequest) && lateFailures.length < MAX_LATE_FAILURES)
      lateFailures.push(describeError(error).traceback);
    return;
  }
  if (cell.uncaught !== undefined) return;
  cell.uncaught = { error };
  const own = cell;
  ended(own, () => ({ status: 'ok' }));
}

function report(text) {
  try {
    writeSync(2, `${shorten(text).trimEnd()}\n`);
  } catch {
    // The cell closed it.
  }
}
