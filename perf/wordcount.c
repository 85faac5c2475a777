/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wordcount [-t THREADS] [-m MiB] [-s SEED] [-c] [-H]: count the words of a large generated text by MapReduce.
 *
 * Written to allocate as such programs do:
 *   split   a task is allocated under a lock for each piece of the text, and freed by the thread that maps it
 *   map     each thread keeps, for each partition of the reduce, a hash table from word to occurrences: a node and a
 *           copy of the word for each new word, and a growing array with the position of every occurrence
 *   reduce  a thread takes a partition of all threads' tables, joins the lists of equal words, and frees nodes, words
 *           and arrays that other threads made; a growing array takes the results
 *   merge   sorted results are merged two by two, in parallel, into new arrays; the inputs are freed
 * Each phase starts its threads anew. Under glibc many small allocations make every thread's arena grow, 4 KiB and one
 * mprotect at a time.
 *
 *        text -> [task] -> map x T -> table[T][R] -> reduce x R -> result[R] -> merge -> one list
 *
 * Output: the most frequent words and a checksum, the same for any number of threads. The generator knows how often it
 * wrote each word, so total and checksum are always checked; -c also counts the text again in one pass, with no code in
 * common, and compares every word. -H prints a histogram of the sizes asked for and the share of frees by a thread
 * other than the one that allocated; it adds a header to each block, so figures are taken without it.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    VOCABULARY = 80000,    /* different words at most */
    WORD_MAX = 24,         /* bytes, with the end */
    PIECE = 64 << 10,      /* bytes of text a map task takes */
    TOP = 20,              /* words printed */
    FIRST_BUCKETS = 64,    /* of a table; doubled as it fills */
    FIRST_POSITIONS = 2,   /* of a growing array; doubled */
    SIZE_BINS = 40,        /* of -H: powers of two */
};

static long threads = 8;

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "wordcount: %s\n", what);
    exit(1);
}

/* ---- allocation, counted only with -H ---------------------------------------------------------------------------- */

/* Before each block when counting. 16 bytes, so that alignment stays. */
struct header {
    uint64_t size;
    uint64_t owner;
};

struct tally {
    uint64_t bin[SIZE_BINS]; /* requests of up to 2^i bytes */
    uint64_t frees, foreign;
};

static int counting;           /* -H; constant after the command line */
static struct tally total_tally; /* under tally_lock */
static pthread_mutex_t tally_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct tally tally;
static __thread uint64_t self; /* this thread's number, 0 is main; never used twice */

static void tally_request(size_t size)
{
    int bin = 0;
    while (((size_t)1 << bin) < size)
        bin++;
    tally.bin[bin]++;
}

static void tally_add(void)
{
    pthread_mutex_lock(&tally_lock);
    for (int i = 0; i < SIZE_BINS; i++)
        total_tally.bin[i] += tally.bin[i];
    total_tally.frees += tally.frees;
    total_tally.foreign += tally.foreign;
    pthread_mutex_unlock(&tally_lock);
}

static void *counted_realloc(void *block, size_t size)
{
    struct header *h = block ? (struct header *)block - 1 : NULL;
    tally_request(size);
    h = realloc(h, sizeof *h + size);
    if (h == NULL)
        die("out of memory");
    *h = (struct header){size, self};
    return h + 1;
}

static void counted_free(void *block)
{
    if (block == NULL)
        return;
    struct header *h = (struct header *)block - 1;
    tally.frees++;
    tally.foreign += h->owner != self;
    free(h);
}

static void *get(size_t size)
{
    if (counting)
        return counted_realloc(NULL, size);
    void *block = malloc(size);
    if (block == NULL)
        die("out of memory");
    return block;
}

static void *resize(void *block, size_t size)
{
    if (counting)
        return counted_realloc(block, size);
    block = realloc(block, size);
    if (block == NULL)
        die("out of memory");
    return block;
}

static void give(void *block)
{
    if (counting)
        counted_free(block);
    else
        free(block);
}

static void *zeroed(size_t size)
{
    return memset(get(size), 0, size);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* The generator's dictionary. A word's rank decides how often it comes: about 1 / (rank + 3). */
struct dictionary {
    char (*word)[WORD_MAX];
    uint64_t *count;    /* how often it was written */
    uint32_t *instead;  /* alias method: the word taken when the toss is at least limit */
    uint32_t *limit;
};

static uint64_t rng;

static uint32_t random_below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((rng >> 32) * n) >> 32);
}

static uint64_t hash_word(const char *word, size_t len)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ len;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)word[i]) * 0x100000001b3u;
    return h ^ (h >> 29);
}

/* A word of its own for each rank: its number in syllables, lowest digit first, then one letter that ends it. */
static void spell(char *word, uint32_t rank)
{
    static const char first[] = "tnsrhldcmfpgwybvk", then[] = "eaoiu";
    enum { FIRST = sizeof first - 1, THEN = sizeof then - 1 };
    size_t len = 0;
    for (uint32_t n = rank + 1; n > 0; n /= FIRST * THEN) {
        word[len++] = first[n % FIRST];
        word[len++] = then[n / FIRST % THEN];
    }
    if (rank % 3 != 0)
        word[len++] = "xqz"[rank % 3];
    for (uint32_t more = random_below(4); rank > 200 && more > 0; more--)
        word[len++] = 'j';
    word[len] = '\0';
}

/* Tables of the alias method: afterwards a word costs two random numbers, whatever the size of the vocabulary. */
static void prepare_toss(struct dictionary *d)
{
    double *share = get(VOCABULARY * sizeof *share), sum = 0;
    uint32_t *small = get(VOCABULARY * sizeof *small), *big = get(VOCABULARY * sizeof *big), smalls = 0, bigs = 0;
    for (uint32_t i = 0; i < VOCABULARY; i++)
        sum += share[i] = 1.0 / (i + 3.0);
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        share[i] *= VOCABULARY / sum;
        d->limit[i] = UINT32_MAX;
        d->instead[i] = i;
        if (share[i] < 1)
            small[smalls++] = i;
        else
            big[bigs++] = i;
    }
    while (smalls > 0 && bigs > 0) {
        uint32_t s = small[--smalls], b = big[bigs - 1];
        d->limit[s] = (uint32_t)(share[s] * UINT32_MAX);
        d->instead[s] = b;
        share[b] -= 1 - share[s];
        if (share[b] < 1) {
            bigs--;
            small[smalls++] = b;
        }
    }
    give(share);
    give(small);
    give(big);
}

static void dictionary_make(struct dictionary *d)
{
    d->word = get(VOCABULARY * sizeof *d->word);
    d->count = zeroed(VOCABULARY * sizeof *d->count);
    d->instead = get(VOCABULARY * sizeof *d->instead);
    d->limit = get(VOCABULARY * sizeof *d->limit);
    for (uint32_t i = 0; i < VOCABULARY; i++)
        spell(d->word[i], i);
    prepare_toss(d);
}

static void dictionary_drop(struct dictionary *d)
{
    give(d->word);
    give(d->count);
    give(d->instead);
    give(d->limit);
}

static uint32_t toss(const struct dictionary *d)
{
    uint32_t i = random_below(VOCABULARY);
    return random_below(UINT32_MAX) < d->limit[i] ? i : d->instead[i];
}

struct text {
    char *bytes;
    size_t len;
};

/* Sentences of lower-case words; the first letter of a sentence is a capital, so that counting must fold case. */
static void text_make(struct text *text, struct dictionary *d, size_t len)
{
    char *at = text->bytes = get(len + 4 * WORD_MAX), *end = at + len;
    int start = 1;
    while (at < end) {
        uint32_t rank = toss(d), mark = random_below(64);
        size_t word_len = strlen(d->word[rank]);
        memcpy(at, d->word[rank], word_len);
        *at = start ? (char)toupper(*at) : *at;
        at += word_len;
        d->count[rank]++;
        start = mark < 5;
        if (start)
            *at++ = '.';
        *at++ = mark < 10 ? '\n' : ' ';
    }
    text->len = (size_t)(at - text->bytes);
}

/* The next word at or after *at, folded into word. Returns its length, 0 at the end. *at is moved behind it. */
static size_t next_word(const struct text *text, size_t *at, size_t end, char *word)
{
    size_t i = *at, len = 0;
    while (i < end && !isalpha((unsigned char)text->bytes[i]))
        i++;
    for (; i < end && isalpha((unsigned char)text->bytes[i]) && len < WORD_MAX - 1; i++)
        word[len++] = (char)tolower((unsigned char)text->bytes[i]);
    word[len] = '\0';
    *at = i;
    return len;
}

/* ---- tables of words, made by map, taken apart by reduce --------------------------------------------------------- */

/* A word and where it was found. The node, the word and the positions are three blocks. */
struct node {
    struct node *next;
    char *word;
    size_t *position;
    uint64_t hash;
    size_t len, cap; /* positions */
};

struct table {
    struct node **bucket;
    size_t buckets, nodes;
};

static void table_grow(struct table *t)
{
    size_t buckets = t->buckets ? 2 * t->buckets : FIRST_BUCKETS;
    struct node **bucket = zeroed(buckets * sizeof(struct node *));
    for (size_t i = 0; i < t->buckets; i++)
        for (struct node *n = t->bucket[i], *next; n != NULL; n = next) {
            next = n->next;
            n->next = bucket[n->hash % buckets];
            bucket[n->hash % buckets] = n;
        }
    give(t->bucket);
    t->bucket = bucket;
    t->buckets = buckets;
}

static struct node *table_find(const struct table *t, uint64_t hash, const char *word)
{
    struct node *n = t->buckets ? t->bucket[hash % t->buckets] : NULL;
    while (n != NULL && (n->hash != hash || strcmp(n->word, word) != 0))
        n = n->next;
    return n;
}

static void table_insert(struct table *t, struct node *n)
{
    if (t->nodes >= t->buckets)
        table_grow(t);
    n->next = t->bucket[n->hash % t->buckets];
    t->bucket[n->hash % t->buckets] = n;
    t->nodes++;
}

static struct node *node_make(uint64_t hash, const char *word, size_t len)
{
    struct node *n = get(sizeof *n);
    *n = (struct node){.hash = hash, .word = memcpy(get(len + 1), word, len + 1)};
    return n;
}

static void node_reserve(struct node *n, size_t len)
{
    if (len <= n->cap)
        return;
    size_t cap = n->cap ? n->cap : FIRST_POSITIONS;
    while (cap < len)
        cap *= 2;
    n->position = resize(n->position, cap * sizeof *n->position);
    n->cap = cap;
}

static void node_drop(struct node *n)
{
    give(n->position);
    give(n->word);
    give(n);
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

struct result {
    char *word; /* owned */
    size_t count, first;
    uint64_t hash;
};

struct results {
    struct result *item; /* sorted by by_count once reduce is done */
    size_t len, cap;
};

/* A piece of the text. Allocated by whoever splits, freed by whoever maps. */
struct task {
    size_t start, end;
};

struct job {
    struct text text;
    long partitions;
    struct table *table;    /* [thread][partition]; written by its map thread, then by the partition's reduce thread */
    struct results *result; /* [partition]; in the merge, [list] */
    pthread_mutex_t lock;
    size_t split_at;        /* under lock */
    long next;              /* next partition or pair of lists to take; under lock */
    long lists, stride;     /* of the merge; constant while its threads run */
};

struct worker {
    pthread_t thread;
    struct job *job;
    void (*work)(struct job *job, long thread);
    long index;
    uint64_t number;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    self = w->number;
    w->work(w->job, w->index);
    if (counting)
        tally_add();
    return NULL;
}

/* Run one phase in `count` new threads. */
static void phase(struct job *job, long count, void (*work)(struct job *job, long thread))
{
    static uint64_t number;
    struct worker *w = get((size_t)count * sizeof *w);
    job->next = 0;
    for (long i = 0; i < count; i++) {
        w[i] = (struct worker){.job = job, .work = work, .index = i, .number = ++number};
        if (pthread_create(&w[i].thread, NULL, worker_main, &w[i]) != 0)
            die("cannot start a thread");
    }
    for (long i = 0; i < count; i++)
        pthread_join(w[i].thread, NULL);
    give(w);
}

static long take_number(struct job *job, long end)
{
    pthread_mutex_lock(&job->lock);
    long n = job->next < end ? job->next++ : -1;
    pthread_mutex_unlock(&job->lock);
    return n;
}

/* The next piece of the text, ending between two words; NULL if there is none left. */
static struct task *split(struct job *job)
{
    struct task *task = NULL;
    pthread_mutex_lock(&job->lock);
    if (job->split_at < job->text.len) {
        size_t end = job->split_at + PIECE;
        while (end < job->text.len && isalpha((unsigned char)job->text.bytes[end]))
            end++;
        task = get(sizeof *task);
        *task = (struct task){job->split_at, end < job->text.len ? end : job->text.len};
        job->split_at = task->end;
    }
    pthread_mutex_unlock(&job->lock);
    return task;
}

/* Note one occurrence: the (word, position) pair of MapReduce. */
static void emit(struct table *t, uint64_t hash, const char *word, size_t len, size_t position)
{
    struct node *n = table_find(t, hash, word);
    if (n == NULL) {
        n = node_make(hash, word, len);
        table_insert(t, n);
    }
    node_reserve(n, n->len + 1);
    n->position[n->len++] = position;
}

static void map(struct job *job, long thread)
{
    struct table *mine = &job->table[thread * job->partitions];
    char word[WORD_MAX];
    for (struct task *task; (task = split(job)) != NULL; give(task))
        for (size_t at = task->start, len; (len = next_word(&job->text, &at, task->end, word)) > 0;) {
            uint64_t hash = hash_word(word, len);
            emit(&mine[(hash >> 40) % (uint64_t)job->partitions], hash, word, len, at - len);
        }
}

static int by_count(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->word, y->word);
}

/* Move all nodes of one thread's table into the joined one; equal words become one node. */
static void join(struct table *joined, struct table *from)
{
    for (size_t i = 0; i < from->buckets; i++)
        for (struct node *n = from->bucket[i], *next; n != NULL; n = next) {
            struct node *same = table_find(joined, n->hash, n->word);
            next = n->next;
            if (same == NULL) {
                table_insert(joined, n);
                continue;
            }
            node_reserve(same, same->len + n->len);
            memcpy(same->position + same->len, n->position, n->len * sizeof *n->position);
            same->len += n->len;
            node_drop(n);
        }
    give(from->bucket);
}

/* Reduce one word's list to its count and first position. The word goes over to the result. */
static void conclude(struct results *out, struct node *n)
{
    struct result r = {n->word, n->len, n->position[0], n->hash};
    for (size_t i = 1; i < n->len; i++)
        if (n->position[i] < r.first)
            r.first = n->position[i];
    if (out->len == out->cap) {
        out->cap = out->cap ? 2 * out->cap : 16;
        out->item = resize(out->item, out->cap * sizeof *out->item);
    }
    out->item[out->len++] = r;
    n->word = NULL;
    node_drop(n);
}

static void reduce(struct job *job, long thread)
{
    (void)thread;
    for (long p; (p = take_number(job, job->partitions)) >= 0;) {
        struct table joined = {NULL, 0, 0};
        struct results *out = &job->result[p];
        for (long t = 0; t < threads; t++)
            join(&joined, &job->table[t * job->partitions + p]);
        for (size_t i = 0; i < joined.buckets; i++)
            for (struct node *n = joined.bucket[i], *next; n != NULL; n = next) {
                next = n->next;
                conclude(out, n);
            }
        give(joined.bucket);
        if (out->len > 0)
            qsort(out->item, out->len, sizeof *out->item, by_count);
    }
}

/* Lists at i and i + stride become one at i. */
static void merge_pair(struct results *a, struct results *b)
{
    struct results out = {get((a->len + b->len + 1) * sizeof *out.item), 0, 0};
    size_t i = 0, j = 0;
    while (i < a->len || j < b->len) {
        int left = j == b->len || (i < a->len && by_count(&a->item[i], &b->item[j]) < 0);
        out.item[out.len++] = left ? a->item[i++] : b->item[j++];
    }
    give(a->item);
    give(b->item);
    *a = out;
    *b = (struct results){NULL, 0, 0};
}

static void merge(struct job *job, long thread)
{
    (void)thread;
    for (long k; (k = take_number(job, job->lists / (2 * job->stride) + 1)) >= 0;) {
        long i = 2 * k * job->stride, j = i + job->stride;
        if (j < job->lists)
            merge_pair(&job->result[i], &job->result[j]);
    }
}

static void run(struct job *job)
{
    job->partitions = job->lists = 2 * threads;
    job->table = zeroed((size_t)(threads * job->partitions) * sizeof *job->table);
    job->result = zeroed((size_t)job->partitions * sizeof *job->result);
    phase(job, threads, map);
    phase(job, threads, reduce);
    for (job->stride = 1; job->stride < job->lists; job->stride *= 2)
        phase(job, threads, merge);
    give(job->table);
}

/* ---- checks and printing ----------------------------------------------------------------------------------------- */

static void check_totals(const struct dictionary *d, const struct results *r, uint64_t *words, uint64_t *sum)
{
    uint64_t want_words = 0, want_sum = 0, want_different = 0;
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        want_words += d->count[i];
        want_different += d->count[i] != 0;
        want_sum += hash_word(d->word[i], strlen(d->word[i])) * d->count[i];
    }
    *words = *sum = 0;
    for (size_t i = 0; i < r->len; i++) {
        *words += r->item[i].count;
        *sum += hash_word(r->item[i].word, strlen(r->item[i].word)) * r->item[i].count;
    }
    if (*words != want_words || *sum != want_sum || r->len != want_different)
        die("FAIL: the counts are not those of the text written");
}

/* For -c: a place in an open table, pointing into the text. */
struct place {
    size_t first, len, count;
};

/* Does the text at p hold this word, whatever its case? */
static int place_holds(const struct text *text, const struct place *p, const char *word, size_t len)
{
    return p->len == len && strncasecmp(text->bytes + p->first, word, len) == 0;
}

static struct place *place_of(struct place *places, size_t mask, const struct text *text, const char *word, size_t len)
{
    size_t i = len;
    for (size_t k = 0; k < len; k++)
        i = i * 131 + (unsigned char)(word[k] | 0x20);
    for (i ^= i >> 17; places[i & mask].count != 0 && !place_holds(text, &places[i & mask], word, len); i++)
        ;
    return &places[i & mask];
}

/* Count again, in one pass and with one thread; every word, count and first position must be the same. */
static void check_again(const struct text *text, const struct results *r)
{
    size_t mask = ((size_t)1 << 18) - 1, different = 0;
    struct place *places = calloc(mask + 1, sizeof *places);
    if (places == NULL)
        die("out of memory");
    for (size_t at = 0; at < text->len;) {
        size_t len = strcspn(text->bytes + at, " .\n");
        if (len > 0) {
            struct place *p = place_of(places, mask, text, text->bytes + at, len);
            different += p->count == 0;
            if (p->count++ == 0)
                *p = (struct place){at, len, 1};
        }
        at += len + 1;
    }
    for (size_t i = 0; i < r->len; i++) {
        const struct place *p = place_of(places, mask, text, r->item[i].word, strlen(r->item[i].word));
        if (p->count != r->item[i].count || p->first != r->item[i].first)
            die("FAIL: the counts are not those of a second count");
    }
    if (different != r->len)
        die("FAIL: not the words of a second count");
    free(places);
}

static void print_tally(void)
{
    uint64_t requests = 0;
    tally_add();
    for (int i = 0; i < SIZE_BINS; i++)
        requests += total_tally.bin[i];
    printf("%" PRIu64 " requests\n", requests);
    for (int i = 0; i < SIZE_BINS; i++)
        if (total_tally.bin[i])
            printf("  <= %10zu B %9" PRIu64 " %5.1f %%\n", (size_t)1 << i, total_tally.bin[i],
                   100.0 * (double)total_tally.bin[i] / (double)requests);
    printf("%" PRIu64 " frees, %.1f %% by another thread than the block's\n", total_tally.frees,
           100.0 * (double)total_tally.foreign / (double)total_tally.frees);
}

static void print_top(const struct results *r, uint64_t words, uint64_t sum)
{
    for (size_t i = 0; i < r->len && i < TOP; i++)
        printf("%9zu %s\n", r->item[i].count, r->item[i].word);
    printf("%" PRIu64 " words, %zu different, checksum %016" PRIx64 "\n", words, r->len, sum);
}

static long number(const char *text, long least)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n < least)
        die("not a sensible number on the command line");
    return n;
}

int main(int argc, char **argv)
{
    long mib = 10, again = 0;
    int opt;
    rng = 1;
    while ((opt = getopt(argc, argv, "t:m:s:cH")) != -1) {
        if (opt == 't')
            threads = number(optarg, 1);
        else if (opt == 'm')
            mib = number(optarg, 1);
        else if (opt == 's')
            rng = (uint64_t)number(optarg, 0);
        else if (opt == 'c')
            again = 1;
        else if (opt == 'H')
            counting = 1;
        else
            return 2;
    }
    if (optind != argc)
        die("usage: wordcount [-t THREADS] [-m MiB] [-s SEED] [-c] [-H]");
    struct dictionary d;
    struct job job = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t words, sum;
    dictionary_make(&d);
    text_make(&job.text, &d, (size_t)mib << 20);
    run(&job);
    check_totals(&d, &job.result[0], &words, &sum);
    if (again)
        check_again(&job.text, &job.result[0]);
    print_top(&job.result[0], words, sum);
    for (size_t i = 0; i < job.result[0].len; i++)
        give(job.result[0].item[i].word);
    give(job.result[0].item);
    give(job.result);
    give(job.text.bytes);
    dictionary_drop(&d);
    if (counting)
        print_tally();
    return 0;
}
