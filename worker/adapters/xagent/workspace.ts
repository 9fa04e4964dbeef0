/** The workspace as a tree, folder by folder, within bounds. */
import { FileListingSchema, MAX_LIST_LIMIT } from '../../../shared/transfer.ts';
import type { OwnSession } from '../../calls/own-session.ts';
import { readTransfer } from '../../calls/session-transfer.ts';
import { pathOfText } from '../../content/file-path.ts';

export interface WorkspaceNode {
  name: string;
  type: 'directory' | 'file';
  children?: WorkspaceNode[];
  /** Beyond the bounds: the folder has more than is shown. */
  truncated?: true;
}

export const WORKSPACE_NAME = 'workspace';

/** Each folder is a transfer of its own. */
const MAX_FOLDERS = 500;
const MAX_ENTRIES = 20_000;

export async function workspaceTree(session: OwnSession): Promise<WorkspaceNode> {
  const root: WorkspaceNode = { name: WORKSPACE_NAME, type: 'directory', children: [] };
  const queue = [{ node: root, path: '' }];
  let folders = 0;
  let entries = 0;
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const { node, path } = next;
    if (folders >= MAX_FOLDERS || entries >= MAX_ENTRIES) {
      node.truncated = true;
      continue;
    }
    folders += 1;
    const listing = await folderListing(session, path);
    entries += listing.entries.length;
    if (listing.next_cursor !== null) node.truncated = true;
    // A name that is not UTF-8 has no text: their clients could not ask for it either.
    for (const { name, type } of listing.entries) {
      if (name === undefined) continue;
      const child: WorkspaceNode =
        type === 'directory' ? { name, type, children: [] } : { name, type: 'file' };
      node.children?.push(child);
      if (type === 'directory') queue.push({ node: child, path: path === '' ? name : `${path}/${name}` });
    }
  }
  return root;
}

async function folderListing(session: OwnSession, path: string) {
  const { body } = await readTransfer(session, {
    operation: 'list',
    path: pathOfText(path, 'path').base64,
    cursor: 0,
    limit: MAX_LIST_LIMIT,
  });
  return FileListingSchema.parse(await new Response(body).json());
}

const MAX_SHOWN_OF_A_FOLDER = 20;

/** As XAgent shows it to its model: a line for each entry, four spaces a level, long folders cut. */
export function treeText(root: WorkspaceNode): string {
  return linesOf(root, 0).join('');
}

function linesOf({ name, children = [], truncated }: WorkspaceNode, level: number): string[] {
  const indent = ' '.repeat(4 * level);
  const files = children.filter(({ type }) => type === 'file');
  const folders = children.filter(({ type }) => type === 'directory');
  const more = `${indent}    - \`wrapped\`\n`;
  return [
    `${indent}- ${name}/\n`,
    ...files.slice(0, MAX_SHOWN_OF_A_FOLDER).map((file) => `${indent}    - ${file.name}\n`),
    ...(files.length > MAX_SHOWN_OF_A_FOLDER || truncated === true ? [more] : []),
    ...folders.slice(0, MAX_SHOWN_OF_A_FOLDER).flatMap((folder) => linesOf(folder, level + 1)),
    ...(folders.length > MAX_SHOWN_OF_A_FOLDER ? [more] : []),
  ];
}
