/** Holds calls to the tool policy of who makes them: refused with the path of the argument and what was expected. */
import { type ArgumentConstraint, constraintViolations } from '../../shared/argument-constraint.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { fileCallOf, isOfTransfer } from '../../shared/file-call.ts';
import { WORKDIR } from '../../shared/session.ts';
import type { ToolName } from '../../shared/tool.ts';
import type { ToolPolicy } from '../../shared/tool-policy.ts';
import { isFileRequest, type TransferRequest } from '../../shared/transfer.ts';
import { Refusal } from '../middleware/refusal.ts';
import { builtInGuard } from './catalogue.ts';
import { constraintsOn, type Guarded, isWithin, mayUse, type Rights } from './policy.ts';

type Held = Pick<Rights, 'toolPolicy'>;

/** The constraints that were applied, for the grant. `workdir`: where paths of the tool begin, where that is known. */
export function requireHeld(
  held: Held,
  tool: Pick<Guarded, 'name' | 'category'>,
  call: { arguments: Record<string, unknown>; root: string; workdir: string | null },
): ArgumentConstraint[] {
  const constraints = constraintsOn(held, tool);
  const violations = constraintViolations(constraints, call.arguments, call);
  const [first] = violations;
  if (first === undefined) return constraints;
  const { path, expected, received } = first;
  const detail = `${path}: the tool policy expects ${expected}, not ${received ?? 'that'}`;
  throw new Refusal(failure('policy_refused', detail, { violations }));
}

/** Its right to a built-in tool, whatever the arguments. */
export function requireBuiltIn({ toolPolicy }: Held, name: ToolName): void {
  if (isWithin(toolPolicy, builtInGuard(name))) return;
  throw new Refusal(failure('policy_refused', `the tool policy leaves out ${name}`));
}

export function requireBuiltInCall(
  held: Held,
  name: ToolName,
  call: { arguments: Record<string, unknown>; root: string },
): ArgumentConstraint[] {
  requireBuiltIn(held, name);
  return requireHeld(held, builtInGuard(name), { ...call, workdir: WORKDIR });
}

/** For what is no call whose arguments could be looked at, such as a terminal: nothing may be asked of them. */
export function requireWholly(held: Held, name: ToolName): void {
  requireBuiltIn(held, name);
  if (constraintsOn(held, builtInGuard(name)).length === 0) return;
  const detail = `the tool policy limits the arguments of ${name}: nothing else stands in for a call of it`;
  throw new Refusal(failure('policy_refused', detail));
}

/**
 * An environment says what shells and kernels do as they begin, so it is given by who may run any program all the same.
 */
export function requireEnvironment(principal: Pick<Rights, 'scopes' | 'toolPolicy'>): Outcome<null> {
  if (principal.toolPolicy === null) return success(null);
  const mayRunAny = RUN_ANYTHING.some((name) => {
    const guard = builtInGuard(name);
    return mayUse(principal, guard) && constraintsOn(principal, guard).length === 0;
  });
  if (mayRunAny) return success(null);
  const detail = `the tool policy leaves none of ${RUN_ANYTHING.join(', ')} free: no environment stands in for a call of them`;
  return failure('policy_refused', detail);
}

const RUN_ANYTHING: readonly ToolName[] = ['python', 'node', 'shell', 'run'];

/** What needs no right to the shell. */
const LOOKS_AT_PROCESSES: ReadonlySet<TransferRequest['operation']> = new Set([
  'process_list',
  'process_read',
  'process_logs',
  'process_wait',
]);

/** A transfer is a call of `file`, or one of `shell`, by another road. */
export function requireTransfer(
  toolPolicy: ToolPolicy | null,
  request: TransferRequest,
): ArgumentConstraint[] {
  const held = { toolPolicy };
  if (isFileRequest(request)) {
    const isShown = constraintsOn(held, builtInGuard('file')).every(({ argument }) => isOfTransfer(argument));
    // An archive has paths and links of its own, which lead where they like.
    if (request.operation === 'extract' || !isShown) requireWholly(held, 'file');
    return requireBuiltInCall(held, 'file', { arguments: { ...fileCallOf(request) }, root: '' });
  }
  if (!LOOKS_AT_PROCESSES.has(request.operation)) requireWholly(held, 'shell');
  return [];
}
