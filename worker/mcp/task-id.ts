/**
 * The id of a task names the execution that it is, and how the call was made. A tag binds it to the caller: an id of
 * another, or one that was made up, wakes nothing.
 */
import type { Caller } from '../objects/caller.ts';
import { callerTag, hasCallerTag, TAG_LENGTH } from './caller-tag.ts';
import type { ResultForm } from './result.ts';

export interface TaskReference {
  sessionId: string;
  executionId: string;
  /** The session was made for the call and ends with it. */
  isOwnSession: boolean;
  form: ResultForm;
}

const PREFIX = 'tsk_';
const FORM = new RegExp(
  `^tsk_([ox])([se])([A-Za-z0-9_-]{38})([A-Za-z0-9_-]{22})([A-Za-z0-9_-]{${TAG_LENGTH}})$`,
);

export async function newTaskId(tagKey: CryptoKey, caller: Caller, task: TaskReference): Promise<string> {
  const how = `${task.isOwnSession ? 'o' : 'x'}${task.form === 'structured' ? 's' : 'e'}`;
  const text = `${how}${task.sessionId.slice('ses_'.length)}${task.executionId.slice('exe_'.length)}`;
  return `${PREFIX}${text}${await callerTag(tagKey, caller, { kind: 'task', text })}`;
}

/** `undefined` for an id that this edge did not make for this caller. */
export async function taskOf(
  tagKey: CryptoKey,
  caller: Caller,
  id: string,
): Promise<TaskReference | undefined> {
  const parts = FORM.exec(id);
  if (parts === null) return undefined;
  const [, own, form, session, execution, tag = ''] = parts;
  const text = id.slice(PREFIX.length, -TAG_LENGTH);
  if (!(await hasCallerTag(tagKey, caller, { kind: 'task', text, tag }))) return undefined;
  return {
    sessionId: `ses_${session}`,
    executionId: `exe_${execution}`,
    isOwnSession: own === 'o',
    form: form === 's' ? 'structured' : 'execution',
  };
}
