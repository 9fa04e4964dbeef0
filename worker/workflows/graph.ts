/** The graph of a workflow: what each task waits for, and what is wrong with it as a graph. Pure. */
import type { Violation } from '../../shared/errors.ts';
import {
  type Condition,
  type CreateWorkflow,
  MAX_FAN_OUT,
  MAX_WORKFLOW_CALLS,
  type Reference,
  type WorkflowTask,
} from '../../shared/workflow.ts';
import { referencesIn } from './references.ts';

/** Tasks that have to end before this one. */
export function dependenciesOf(task: WorkflowTask): string[] {
  const named = referencesOf(task).flatMap((reference) => ('$from' in reference ? [reference.$from] : []));
  return [...new Set([...task.depends_on, ...named])];
}

export function graphViolations({ tasks, sessions }: CreateWorkflow): Violation[] {
  const violations: Violation[] = [];
  const isTask = (name: string): boolean => Object.hasOwn(tasks, name);
  let calls = 0;
  for (const [name, task] of Object.entries(tasks)) {
    calls += (task.for_each === undefined ? 1 : MAX_FAN_OUT) * (task.retries?.max_attempts ?? 1);
    const path = `body.tasks.${name}`;
    for (const dependency of dependenciesOf(task)) {
      if (!isTask(dependency)) {
        violations.push({ path, expected: 'references to tasks of this workflow', received: dependency });
      }
    }
    if (task.session !== 'main' && !Object.hasOwn(sessions, task.session)) {
      violations.push({
        path: `${path}.session`,
        expected: 'a name in body.sessions',
        received: task.session,
      });
    }
    if (task.for_each === undefined && referencesOf(task).some((reference) => '$item' in reference)) {
      violations.push({ path, expected: '`$item` only in a task with `for_each`' });
    }
    if (task.for_each !== undefined && '$item' in task.for_each) {
      violations.push({ path: `${path}.for_each`, expected: 'a list from a task or the input' });
    }
  }
  if (calls > MAX_WORKFLOW_CALLS) {
    const received = String(calls);
    violations.push({
      path: 'body.tasks',
      expected: `at most ${MAX_WORKFLOW_CALLS} calls at worst`,
      received,
    });
  }
  if (violations.length > 0) return violations;
  const circle = circleIn(tasks);
  if (circle === undefined) return [];
  return [{ path: 'body.tasks', expected: 'no task that waits for itself', received: circle.join(' → ') }];
}

function referencesOf(task: WorkflowTask): Reference[] {
  return [
    ...referencesIn(task.arguments),
    ...(task.for_each === undefined ? [] : [task.for_each]),
    ...(task.when === undefined ? [] : referencesOfCondition(task.when)),
  ];
}

function referencesOfCondition(condition: Condition): Reference[] {
  if ('value' in condition) return [condition.value];
  const parts = [
    ...(condition.all ?? []),
    ...(condition.any ?? []),
    ...(condition.not ? [condition.not] : []),
  ];
  return parts.flatMap(referencesOfCondition);
}

/** The names along a circle, where there is one. */
function circleIn(tasks: Readonly<Record<string, WorkflowTask>>): string[] | undefined {
  const done = new Set<string>();
  const visit = (name: string, path: readonly string[]): string[] | undefined => {
    if (done.has(name)) return undefined;
    const at = path.indexOf(name);
    if (at >= 0) return [...path.slice(at), name];
    const task = tasks[name];
    for (const dependency of task === undefined ? [] : dependenciesOf(task)) {
      const circle = visit(dependency, [...path, name]);
      if (circle !== undefined) return circle;
    }
    done.add(name);
    return undefined;
  };
  for (const name of Object.keys(tasks)) {
    const circle = visit(name, []);
    if (circle !== undefined) return circle;
  }
  return undefined;
}
