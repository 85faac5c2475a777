/* SPDX-License-Identifier: BSD-2-Clause */
/* Options, read once from SHEAF_CONF=key:value,... Level 1. The rows are in opt.def. */
#ifndef CORE_OPT_H
#define CORE_OPT_H

#include "compat/os/cc.h"
#include "compat/os/fmt.h"

/* One word an option; a PATH is a const char pointer (NULL: not set). Constant after opt_init. Before it, the defaults. */
struct opt {
#define OPT(type, name, def, choices, state, doc) uintptr_t name;
#include "opt.def"
#undef OPT
};

extern struct opt opt;

enum opt_purge { OPT_PURGE_ON, OPT_PURGE_OFF };
enum opt_thp { OPT_THP_NEVER, OPT_THP_AUTO, OPT_THP_ALWAYS };
enum opt_deepbind { OPT_DEEPBIND_DROP, OPT_DEEPBIND_KEEP };
enum opt_maple_prealloc { OPT_MAPLE_PREALLOC_EXACT, OPT_MAPLE_PREALLOC_WORST };

/* What: set options from a text of key:value pairs with commas between; NULL is fine. Each unknown key or bad value
 * prints one line and is skipped. Owner: the text is copied where it is kept. Context: constructor, one thread. */
void opt_init(const char *conf);

/* What: append "name:value" of every option, one a line, with its meaning. */
void opt_print(struct fmt *f);

#endif
