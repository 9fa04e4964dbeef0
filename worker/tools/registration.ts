/** A tool as it is handed to a catalogue: whole, and its credentials sealed for whose it is. */
import type { RegisterTool } from '../../shared/registered-tool.ts';
import type { Configuration } from '../configuration.ts';
import { invalid } from '../middleware/body.ts';
import type { PutTool } from '../objects/catalogue/port.ts';
import { sealSecrets } from '../secrets/sealed-secrets.ts';
import { addressRules } from './http/address.ts';
import { faultOf } from './registered.ts';

export interface ToolOwner {
  configuration: Configuration;
  /** Or the name that stands for all of them. */
  tenant: string;
}

/** One tool that could not be called is refused, with the place of its fault. */
export async function wholeTool(tool: RegisterTool, owner: ToolOwner): Promise<PutTool> {
  const fault = faultOf(tool, addressRules(owner.configuration));
  if (fault !== undefined) throw invalid([{ ...fault, path: `body.${fault.path}` }]);
  return { tool, credentials: await sealedCredentials(tool, owner), fault: null };
}

export async function sealedCredentials(
  tool: RegisterTool,
  { configuration, tenant }: ToolOwner,
): Promise<PutTool['credentials']> {
  if (tool.kind !== 'http' || tool.credentials === undefined) return tool.kind === 'http' ? undefined : null;
  const names = Object.keys(tool.credentials);
  if (names.length === 0) return null;
  const owner = { tenant, holder: tool.name };
  return { names, sealed: await sealSecrets(configuration.secretsKey, owner, tool.credentials) };
}
