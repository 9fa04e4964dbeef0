/** A tool as it is shown to one caller: with what the tool policy of the caller makes of its arguments. */
import { type ArgumentConstraint, expectedOf } from '../../shared/argument-constraint.ts';
import { headOf } from '../rendering/clip.ts';
import type { ToolDefinition } from './definition.ts';
import { constraintsOn, type Rights } from './policy.ts';

const MAX_NOTE_CHARACTERS = 600;

export function heldDefinition<Tool extends ToolDefinition>(
  tool: Tool,
  rights: Pick<Rights, 'toolPolicy'>,
): Tool {
  const constraints = constraintsOn(rights, tool);
  if (constraints.length === 0) return tool;
  // In front, as some APIs cut descriptions.
  return { ...tool, description: `${constraintNote(constraints)}. ${tool.description}`, constraints };
}

export function constraintNote(constraints: readonly ArgumentConstraint[]): string {
  const notes = constraints.map((constraint) => {
    const { argument, required } = constraint;
    return `${argument} ${required ? '' : '(where given) '}has to be ${expectedOf(constraint)}`;
  });
  return headOf(`For you ${notes.join('; ')}`, MAX_NOTE_CHARACTERS);
}
