/** Whether a condition holds. Pure: the same values give the same answer whenever a run is taken up again. */
import type { Comparison, Condition } from '../../shared/workflow.ts';
import { lookUp, type Surroundings } from './references.ts';

export function holds(condition: Condition, surroundings: Surroundings): boolean {
  if ('value' in condition) return compares(condition, surroundings);
  const { all, any, not } = condition;
  if (all?.some((part) => !holds(part, surroundings)) === true) return false;
  if (any !== undefined && !any.some((part) => holds(part, surroundings))) return false;
  return not === undefined || !holds(not, surroundings);
}

function compares(comparison: Comparison, surroundings: Surroundings): boolean {
  const found = lookUp(comparison.value, surroundings);
  const { equals, not_equals, exists, greater_than, less_than } = comparison;
  if (exists !== undefined && exists !== (found.ok && found.value !== null)) return false;
  const value = found.ok ? found.value : null;
  if (equals !== undefined && !isSame(value, equals)) return false;
  if (not_equals !== undefined && isSame(value, not_equals)) return false;
  if (greater_than !== undefined && !(typeof value === 'number' && value > greater_than)) return false;
  return less_than === undefined || (typeof value === 'number' && value < less_than);
}

/** Equal as JSON: the order of keys says nothing. */
function isSame(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && isSame(Reflect.get(left, key), Reflect.get(right, key)))
  );
}
