/* SPDX-License-Identifier: MIT */
/* Loadable modules: tasuki-NAME.so, for what the core does not link (MPI, CUDA, libslurm).
 *
 * Looked for in $TASUKI_PKGLIBDIR where that is set; else next to the program in .libs, so
 * that a build tree runs in place, then in the installed $(pkglibdir), wherever that was moved.
 */
#ifndef TASUKI_BASE_MODULE_H
#define TASUKI_BASE_MODULE_H

#include <stddef.h>

struct err;

/* The folder that the running program is in, malloc'ed; NULL where it cannot be known. In a
 * build tree it holds what else runs in place.
 */
char *module_program_folder(void);
/* Where 'compiled', a directory of the installation that configure was told, is now: an
 * installation that was moved as a whole has it as far from the program as it was. malloc'ed.
 */
char *module_installed(const char *compiled);
/* The same of a program in 'folder' that was to be installed in 'bindir'. */
char *module_moved(const char *folder, const char *bindir, const char *compiled);
/* A file that comes with the program, malloc'ed: 'in_tree' below its folder, where a build tree has it
 * there, else 'compiled' where that is now.
 */
char *module_file(const char *in_tree, const char *compiled);
/* The module's path in malloc'ed memory, NULL where there is none. */
char *module_find(const char *name);
/* dlopen() it, once: a module stays. NULL with 'err' that names the file and, where it is
 * missing, the directories.
 */
void *module_open(const char *name, struct err *err);
/* A symbol of an open module; NULL with 'err'. */
void *module_symbol(void *module, const char *symbol, struct err *err);

#endif
