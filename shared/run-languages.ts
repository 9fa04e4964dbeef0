/** Languages that the tool `run` knows by name. */
import * as z from 'zod';

export const RunLanguageSchema = z.enum([
  'python',
  'javascript',
  'typescript',
  'shell',
  'c',
  'cpp',
  'go',
  'rust',
  'java',
  'ruby',
  'php',
  'perl',
  'lua',
  'r',
]);
export type RunLanguage = z.infer<typeof RunLanguageSchema>;
