"""`vecmill optimize`: measure on this machine how a model is computed best, and write that down.

    candidates      which plans there are to try: engine, precision, lanes, token budget, rounding
    search          which of them to measure next, until the time is up
      bench         does it: a process for each engine that is loaded (`worker`), told what to do by `calls`
      journal       remembers it, so that an interrupted run can be gone on with
    figures         what was measured, and what follows from it
    choice          which plan it is to be
    artefact        a directory to serve from: the model, `manifest`, prepared files, `report`, `plots`
    serving         what a mill makes of such a directory

How speeds are compared. A machine that others share drifts, by a third and more within minutes. So no figure
stands alone: measurements come in passes, each of which begins and ends with the safe plan, the fp32
engine that everything else is compared with. What counts is a plan's speed over that of the safe plan in the
same pass, the median of several; and how far the safe plan's two figures of a pass are apart says how
much noise there is.
"""
