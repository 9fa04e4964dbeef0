/**
 * Evaluates cells as the console of an inspector does: declarations can be made again, `await` works at top level, and the
 * last expression is the value.
 */
import { Session } from 'node:inspector';
import { promiseHooks } from 'node:v8';
import { scriptOf } from './node-source.mjs';

export class Evaluator {
  #session = new Session();
  #taken = {};
  #takerId;
  /** The promise of the cell that is awaited. The session must not see it collected: that calls JavaScript, and is fatal. */
  #awaited = [];
  #stopHolding = () => {};

  constructor() {
    this.#session.connect();
    this.#takerId = this.#objectIdOf(this.#taken);
  }

  /** Calls one of `value`, `error` and `brokenInto`, unless the cell is abandoned. */
  evaluate(code, name, { value, error, brokenInto }) {
    const expression = `${scriptOf(code)}\n//# sourceURL=${name}`;
    this.#awaited = [];
    this.#stopHolding = promiseHooks.onInit((promise) => {
      if (this.#awaited.length === 0) this.#awaited.push(promise);
    });
    const options = { expression, replMode: true, awaitPromise: true, objectGroup: name };
    this.#session.post('Runtime.evaluate', options, (problem, answer) => {
      this.#stopHolding();
      if (problem !== null) brokenInto();
      else if (answer.exceptionDetails === undefined) value(this.#valueOf(answer.result));
      else error(...this.#thrown(answer.exceptionDetails));
      this.#session.post('Runtime.releaseObjectGroup', { objectGroup: name });
    });
    this.#stopHolding();
  }

  /** Gives up what is still awaited, and this evaluator with it. */
  abandon() {
    this.#stopHolding();
    this.#session.disconnect();
  }

  /** What was thrown, and where, which of a cell that does not parse nothing else says. */
  #thrown({ exception, text, lineNumber, columnNumber, stackTrace }) {
    const thrown = exception === undefined ? new Error(text) : this.#valueOf(exception);
    const url = stackTrace?.callFrames[0]?.url;
    return [thrown, { url, line: lineNumber + 1, column: columnNumber + 1 }];
  }

  /** The value behind the inspector's description of it. */
  #valueOf({ objectId, unserializableValue, value }) {
    const argument = objectId === undefined ? { unserializableValue, value } : { objectId };
    this.#session.post('Runtime.callFunctionOn', {
      objectId: this.#takerId,
      functionDeclaration: 'function (value) { this.value = value; }',
      arguments: [argument],
    });
    const { value: found } = this.#taken;
    this.#taken.value = undefined;
    return found;
  }

  /** The inspector's handle of an object of this file. */
  #objectIdOf(object) {
    globalThis.__sandgate_object = object;
    let objectId;
    this.#session.post('Runtime.evaluate', { expression: '__sandgate_object' }, (_, { result }) => {
      objectId = result.objectId;
    });
    delete globalThis.__sandgate_object;
    return objectId;
  }
}
