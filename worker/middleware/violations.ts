/** What a schema found wrong, as the paths and expectations that a caller can act on. */
import type * as z from 'zod';
import type { Violation } from '../../shared/errors.ts';

const MAX_VIOLATIONS = 32;
const MAX_PATH_LENGTH = 256;
const MAX_EXPECTED_LENGTH = 512;

type Issue = z.core.$ZodIssue;

/** `root` is where the value came from: `body`, `body.arguments`, `query` or `header`. */
export function violationsOf(error: z.ZodError, root: string): Violation[] {
  return error.issues.flatMap((issue) => violationsOfIssue(issue, root)).slice(0, MAX_VIOLATIONS);
}

function violationsOfIssue(issue: Issue, root: string): Violation[] {
  const path = [root, ...issue.path.map(String)].join('.');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => violation(`${path}.${key}`, 'no field of this name'));
  }
  if (issue.code === 'invalid_key') {
    return [violation(path, `a valid name: ${issue.issues.map((inner) => expectationOf(inner)).join('; ')}`)];
  }
  return [violation(path, expectationOf(issue))];
}

function expectationOf(issue: Issue): string {
  switch (issue.code) {
    case 'invalid_type':
      return issue.expected;
    case 'invalid_value':
      return `one of ${issue.values.map((value) => JSON.stringify(value)).join(', ')}`;
    case 'too_small':
      return `at least ${issue.minimum} ${unitOf(issue.origin)}`.trimEnd();
    case 'too_big':
      return `at most ${issue.maximum} ${unitOf(issue.origin)}`.trimEnd();
    case 'invalid_format':
      return issue.pattern === undefined ? `a ${issue.format}` : `text that matches ${issue.pattern}`;
    case 'invalid_union':
      return optionsOf(issue);
    default:
      return issue.message;
  }
}

function optionsOf(issue: Extract<Issue, { code: 'invalid_union' }>): string {
  const options = 'options' in issue && Array.isArray(issue.options) ? issue.options : [];
  if (options.length > 0) return `one of ${options.map((option) => JSON.stringify(option)).join(', ')}`;
  return issue.message;
}

function unitOf(origin: string): string {
  if (origin === 'string') return 'characters';
  if (origin === 'array' || origin === 'set') return 'elements';
  return '';
}

export function violation(path: string, expected: string): Violation {
  return { path: path.slice(0, MAX_PATH_LENGTH), expected: expected.slice(0, MAX_EXPECTED_LENGTH) };
}
