/* SPDX-License-Identifier: MIT */
/* Drawings are read back: no text runs into another or out of its box, no box crosses another.
 */
#include "recorded.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/model.h"
#include "topology/node_read.h"
#include "topology/report.h"

/* Advance widths of DejaVu Sans and its bold, thousandths of an em, from ' ' to '~': a wide
 * font, and the one that most Linux machines show.
 */
static const short advance[2][95] = {
    { 318, 401, 460, 838, 637, 951, 780, 275, 391, 391, 501, 838, 318, 361, 318, 337, 637, 637,
      637, 637, 637, 637, 637, 637, 637, 637, 337, 337, 838, 838, 838, 531, 1001, 685, 687, 699,
      771, 632, 576, 775, 752, 295, 295, 656, 558, 863, 749, 788, 604, 788, 695, 635, 611, 732,
      685, 989, 686, 611, 686, 391, 337, 391, 838, 501, 501, 613, 635, 550, 635, 616, 353, 635,
      634, 278, 278, 580, 278, 975, 634, 612, 635, 635, 412, 521, 393, 634, 592, 818, 592, 592,
      525, 637, 337, 637, 838 },
    { 349, 457, 521, 838, 696, 1002, 873, 307, 458, 458, 523, 838, 380, 416, 380, 366, 696, 696,
      696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 581, 1001, 774, 763, 734,
      831, 684, 684, 821, 837, 373, 373, 775, 638, 996, 837, 851, 733, 851, 771, 721, 683, 813,
      774, 1104, 771, 725, 726, 458, 366, 458, 838, 501, 501, 675, 716, 593, 716, 679, 436, 716,
      712, 343, 343, 666, 343, 1042, 712, 688, 716, 716, 494, 596, 479, 712, 652, 924, 646, 652,
      583, 712, 366, 712, 838 },
};

struct box {
    double left, top, right, bottom;
    char text[256];         /* "": a rectangle */
};

struct picture {
    int n_rects, n_texts;
    struct box *rects, *texts;
};

static double width_of(const char *text, double size, bool bold)
{
    double sum = 0;

    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '&')          /* an entity is one character */
            c += strcspn((const char *)c, ";");
        if ((*c & 0xc0) != 0x80)
            sum += *c >= ' ' && *c <= '~' ? advance[bold][*c - ' '] : 1001;
    }
    return sum * size / 1000;
}

static void read_line(struct picture *p, const char *line)
{
    struct box *b;
    char class[32], text[256] = "";
    double x, y, w, h, size;
    bool bold;

    if (sscanf(line, "<rect class=\"%31[^\"]\" x=\"%lf\" y=\"%lf\" width=\"%lf\" "
               "height=\"%lf\"", class, &x, &y, &w, &h) == 5) {
        b = mem_push((void **)&p->rects, &p->n_rects, sizeof(*b));
        *b = (struct box){ x, y, x + w, y + h, "" };
    } else if (sscanf(line, "<text class=\"%31[^\"]\" x=\"%lf\" y=\"%lf\">%255[^<]", class, &x,
                      &y, text) >= 3 && text[0]) {
        bold = strstr(class, "title") || strstr(class, "bold");
        size = strstr(class, "title")                               ? 15
               : strstr(class, "small") || strstr(class, "warning") ? 10
                                                                    : 11;
        w = width_of(text, size, bold);
        if (strstr(class, " m"))
            x -= w / 2;
        b = mem_push((void **)&p->texts, &p->n_texts, sizeof(*b));
        *b = (struct box){ x, y - 0.76 * size, x + w, y + 0.22 * size, "" };
        snprintf(b->text, sizeof(b->text), "%s", text);
    }
}

static bool inside(const struct box *a, const struct box *b)
{
    return a->left >= b->left && a->right <= b->right && a->top >= b->top &&
           a->bottom <= b->bottom;
}

static bool apart(const struct box *a, const struct box *b)
{
    return a->right <= b->left || b->right <= a->left || a->bottom <= b->top ||
           b->bottom <= a->top;
}

static void check_texts(const char *name, const struct picture *p, const struct box *page)
{
    for (int i = 0; i < p->n_texts; i++) {
        const struct box *t = &p->texts[i];

        if (!inside(t, page))
            fail_msg("%s: \"%s\" runs out of the page", name, t->text);
        for (int j = 0; j < i; j++)
            if (!apart(t, &p->texts[j]))
                fail_msg("%s: \"%s\" and \"%s\" overlap", name, t->text, p->texts[j].text);
        for (int j = 0; j < p->n_rects; j++)
            if (!apart(t, &p->rects[j]) && !inside(t, &p->rects[j]))
                fail_msg("%s: \"%s\" (%g-%g, %g-%g) crosses the border of a box", name, t->text,
                         t->left, t->right, t->top, t->bottom);
    }
}

static void check_picture(const char *name, char *text, int least)
{
    struct picture p = { 0 };
    struct box page = { 0 };

    assert_int_equal(sscanf(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lf\" "
                            "height=\"%lf\"", &page.right, &page.bottom), 2);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        read_line(&p, line);
    check_texts(name, &p, &page);
    for (int i = 0; i < p.n_rects; i++) {
        if (!inside(&p.rects[i], &page))
            fail_msg("%s: a box runs out of the page", name);
        for (int j = 0; j < i; j++)
            if (!apart(&p.rects[i], &p.rects[j]) && !inside(&p.rects[i], &p.rects[j]))
                fail_msg("%s: boxes overlap at %g, %g", name, p.rects[i].left, p.rects[i].top);
    }
    assert_true(p.n_texts >= least);
    free(p.rects);
    free(p.texts);
    free(text);
}

static const char *const machines[] = {
    "arm", "dead-nvlink", "dgx1", "dgx2", "hgx-h100", "lost-gpu", "mig", "no-gpu", "omni-path",
    "one-socket", "slurm-step",
};
#define MACHINES ((int)(sizeof(machines) / sizeof(machines[0])))

static void every_recorded_machine_is_drawn_without_overlaps(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        struct topo_record *record = recorded_file(machines[i]);
        struct err err = { 0 };
        struct cluster *cluster = model_of_record(record, "test", &err);
        char *text = report_svg(record, cluster, &err);

        assert_non_null(text);
        if (strstr(text, "\xe2\x80\xa6"))
            fail_msg("%s: a label is cut", machines[i]);
        check_picture(machines[i], text, 2);
        cluster_free(cluster);
        topo_record_free(record);
    }
}

/* Nodes of a grid. */
struct grid {
    const char *name;
    int nodes, leaves;      /* leaves: switches under a spine; 0: none */
    bool mixed, faults;
    const char *host;       /* format of their names */
};

static struct topo_node *node_of(const struct grid *grid, int i)
{
    const char *machine = grid->mixed ? machines[i % MACHINES] : "hgx-h100";
    struct topo_node *node = recorded_machine(machine);
    char *host = mem_printf(grid->host, i);

    topo_node_set_text(&node->host, host);
    free(host);
    if (grid->faults && i % 7 == 3 && node->n_gpus > 0) {
        node->gpus[0].ecc_uncorrected = i % 2;
        if (node->gpus[0].n_links > 0)
            node->gpus[0].links[0].up = 0;
        for (int j = 0; j < node->n_nics; j++)
            topo_node_set_text(&node->nics[j].state, "DOWN");
    }
    return node;
}

static struct cluster *tree_of(const struct grid *grid, const struct topo_record *record)
{
    struct cluster *c = cluster_new("a cluster with a name of some length");
    int spine = grid->leaves ? cluster_add_place(c, CLUSTER_SWITCH, "spine", 0, 1e11) : 0;
    int leaf = 0;

    for (int i = 0; i < grid->nodes; i++) {
        char *id = mem_printf("%s/gpu0", topo_record_host(record, i)), name[64];
        int node;

        if (grid->leaves && i % (grid->nodes / grid->leaves) == 0) {
            snprintf(name, sizeof(name), "leaf-switch-of-row-%d", i);
            leaf = cluster_add_place(c, CLUSTER_SWITCH, name, spine, 1e11);
        }
        node = cluster_add_place(c, CLUSTER_NODE, topo_record_host(record, i), leaf, 1e10);
        cluster_add_device(c, id, "gpu", node, 1e10);
        free(id);
    }
    return c;
}

static char *draw(const struct grid *grid)
{
    struct topo_record *record = topo_record_new();
    struct cluster *cluster;
    struct err err = { 0 };
    char *text;

    for (int i = 0; i < grid->nodes; i++) {
        struct topo_node *node = node_of(grid, i);

        assert_int_equal(topo_record_add_node(record, node, &err), 0);
        topo_node_free(node);
    }
    cluster = tree_of(grid, record);
    text = report_svg(record, cluster, &err);
    assert_non_null(text);
    cluster_free(cluster);
    topo_record_free(record);
    return text;
}

static void many_nodes_are_drawn_without_overlaps(void **state)
{
    static const struct grid grids[] = {
        { "two nodes", 2, 0, false, false, "n%d" },
        { "four nodes", 4, 2, false, true, "n%d" },
        { "64 nodes", 64, 0, false, true, "n%03d" },
        { "64 nodes under 4 leaves", 64, 4, false, false, "n%03d" },
        { "mixed kinds", 66, 3, true, true, "mixed-partition-%04d" },
        { "long names", 20, 2, true, true, "WIDE-NAME-OF-A-NODE-MMMM-%03d.cluster.example" },
        { "names that need escapes", 5, 0, true, false, "<&\"WWWWWWWWWWWW-%d>" },
        { "300 nodes", 300, 3, true, false, "n%05d" },
        { "257 nodes alike", 257, 0, false, false, "n%05d" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++)
        check_picture(grids[i].name, draw(&grids[i]), 3);
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (text = strstr(text, part); text; text = strstr(text + 1, part))
        n++;
    return n;
}

static void names_stay_distinct_and_faults_are_red(void **state)
{
    static const struct grid grid = { "odd", 20, 2, false, true, "a-long-name-of-a-node-%03d" };
    char *text = draw(&grid);

    (void)state;
    for (int i = 0; i < 20; i++) {
        char end[16];

        snprintf(end, sizeof(end), "-%03d</text>", i);
        assert_int_equal(count(text, end), 1);
    }
    assert_int_equal(count(text, "class=\"warning\""), 3);
    assert_contains(text, ">down or not well<");
    free(text);
}

static void many_nodes_alike_share_a_cell(void **state)
{
    static const struct grid grid = { "alike", 300, 3, false, false, "n%05d" };
    char *text = draw(&grid);

    (void)state;
    assert_int_equal(count(text, ">100 nodes alike<"), 3);
    assert_true(strlen(text) < 20000);
    free(text);
}

static void a_tree_without_descriptions_is_drawn(void **state)
{
    struct topo_record *record = topo_record_new();
    struct err err = { 0 };
    struct cluster *c = cluster_open("tree:4x8,inside=150e9,across=12.5e9,memory=32e9", &err);
    char *text = report_svg(record, c, &err);

    (void)state;
    assert_contains(text, ": 4 nodes<");
    assert_int_equal(count(text, ">8 x "), 4);
    check_picture("tree", text, 8);
    cluster_free(c);
    topo_record_free(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_machine_is_drawn_without_overlaps),
        cmocka_unit_test(many_nodes_are_drawn_without_overlaps),
        cmocka_unit_test(names_stay_distinct_and_faults_are_red),
        cmocka_unit_test(many_nodes_alike_share_a_cell),
        cmocka_unit_test(a_tree_without_descriptions_is_drawn),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
